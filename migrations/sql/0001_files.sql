-- Uploaded files, and the virtual output and error files of batches (`batch_id` and `side` are set, no chunks exist).
CREATE TABLE file (
    tenant_id bigint NOT NULL REFERENCES tenant (id),
    id bigint GENERATED ALWAYS AS IDENTITY,
    project_id bigint NOT NULL,
    public_id text NOT NULL,
    filename text NOT NULL,
    purpose text NOT NULL,
    bytes bigint NOT NULL DEFAULT 0,
    sha256 bytea,
    is_complete boolean NOT NULL DEFAULT false,
    batch_id bigint,
    side smallint,
    created_at timestamptz NOT NULL DEFAULT now(),
    touched_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    deleted_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, public_id),
    FOREIGN KEY (tenant_id, project_id) REFERENCES project (tenant_id, id)
);
CREATE INDEX file_by_batch ON file (tenant_id, batch_id, side) WHERE batch_id IS NOT NULL;

-- The uploaded bytes, in order: pieces of at most 1 MiB that end at a line end where one is near enough. `start` is the byte offset in the file.
CREATE TABLE file_chunk (
    tenant_id bigint NOT NULL,
    file_id bigint NOT NULL,
    n integer NOT NULL,
    start bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (tenant_id, file_id, n)
);
ALTER TABLE file_chunk ALTER data SET STORAGE EXTERNAL;
