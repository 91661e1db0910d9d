-- Files that come in parts. The bytes of a part lie in `file_chunk` under a `file` row that is never complete, so nobody sees them;
-- completing an upload copies them, in order, into a file of their own. State: 0 pending, 1 completed, 2 cancelled.
CREATE TABLE upload (
    tenant_id bigint NOT NULL REFERENCES tenant (id),
    id bigint GENERATED ALWAYS AS IDENTITY,
    project_id bigint NOT NULL,
    public_id text NOT NULL,
    filename text NOT NULL,
    purpose text NOT NULL,
    bytes bigint NOT NULL,
    life_seconds integer,
    state smallint NOT NULL DEFAULT 0,
    file_id bigint,
    parts_hash bytea,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL DEFAULT now() + interval '1 hour',
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, public_id),
    FOREIGN KEY (tenant_id, project_id) REFERENCES project (tenant_id, id)
);

CREATE TABLE upload_part (
    tenant_id bigint NOT NULL,
    upload_id bigint NOT NULL,
    file_id bigint NOT NULL,
    public_id text NOT NULL,
    bytes bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, upload_id, file_id),
    FOREIGN KEY (tenant_id, upload_id) REFERENCES upload (tenant_id, id) ON DELETE CASCADE
);

DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['upload', 'upload_part'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY own_tenant ON %I TO sw_app USING (tenant_id = current_tenant()) WITH CHECK (tenant_id = current_tenant())', t);
        EXECUTE format('CREATE POLICY every_tenant ON %I TO sw_worker USING (true) WITH CHECK (true)', t);
        EXECUTE format('CREATE POLICY administer ON %I TO sw_admin USING (true) WITH CHECK (true)', t);
    END LOOP;
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON upload, upload_part TO sw_app;
GRANT SELECT, DELETE ON upload, upload_part TO sw_worker;
GRANT SELECT ON upload, upload_part TO sw_admin;

CREATE INDEX file_unfinished ON file (touched_at) WHERE NOT is_complete AND batch_id IS NULL;
