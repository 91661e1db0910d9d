-- `input_file_id` is what the client named; `file_id` is what it meant, null where nothing was found.
-- `ending` is the final state a batch in `finalizing` is bound for. Counts and usage are frozen once it is final.
CREATE TABLE batch (
    tenant_id bigint NOT NULL REFERENCES tenant (id),
    id bigint NOT NULL DEFAULT next_batch_id(),
    public_id text NOT NULL,
    project_id bigint NOT NULL,
    api_key_id bigint,
    endpoint text NOT NULL,
    input_file_id text NOT NULL,
    file_id bigint,
    output_file_id text NOT NULL,
    error_file_id text NOT NULL,
    state smallint NOT NULL DEFAULT 0,
    ending smallint,
    completion_window text NOT NULL,
    priority smallint NOT NULL DEFAULT 0,
    on_invalid text NOT NULL DEFAULT 'fail',
    total integer NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    in_progress_at timestamptz,
    finalizing_at timestamptz,
    completed_at timestamptz,
    failed_at timestamptz,
    expired_at timestamptz,
    cancelling_at timestamptz,
    cancelled_at timestamptz,
    output_expires_after_seconds integer,
    metadata json,
    errors json,
    counts json,
    idempotency_key text,
    idempotency_hash bytea,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, public_id),
    UNIQUE (tenant_id, idempotency_key),
    FOREIGN KEY (tenant_id, project_id) REFERENCES project (tenant_id, id),
    FOREIGN KEY (tenant_id, api_key_id) REFERENCES api_key (tenant_id, id),
    FOREIGN KEY (tenant_id, file_id) REFERENCES file (tenant_id, id)
);
-- Few rows are unfinished at any time; every duty looks only at these.
CREATE INDEX batch_unfinished ON batch (state, id) WHERE state IN (0, 1, 2, 6);
CREATE INDEX batch_by_file ON batch (tenant_id, file_id) WHERE file_id IS NOT NULL;

-- What fairness ranks: everything of one tenant, model, priority and deadline bucket.
CREATE TABLE lane (
    tenant_id bigint NOT NULL REFERENCES tenant (id),
    id bigint GENERATED ALWAYS AS IDENTITY,
    model_id integer NOT NULL REFERENCES model (id),
    priority smallint NOT NULL,
    deadline_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, model_id, priority, deadline_at)
);

-- One row per model in a batch: its lane, and the price that was valid when the batch was created.
CREATE TABLE batch_model (
    tenant_id bigint NOT NULL,
    batch_id bigint NOT NULL,
    model_id integer NOT NULL REFERENCES model (id),
    lane_id bigint NOT NULL,
    total integer NOT NULL,
    input_picodollars bigint NOT NULL DEFAULT 0,
    cached_picodollars bigint NOT NULL DEFAULT 0,
    output_picodollars bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, batch_id, model_id),
    FOREIGN KEY (tenant_id, batch_id) REFERENCES batch (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, lane_id) REFERENCES lane (tenant_id, id)
);

-- Live counts are sums over the slots: one row per worker that stored something, slot 0 for what duties filled in.
-- `cached_known` counts the results whose engine told its cached tokens: unknown is not zero.
CREATE TABLE progress (
    tenant_id bigint NOT NULL,
    batch_id bigint NOT NULL,
    slot integer NOT NULL,
    succeeded integer NOT NULL DEFAULT 0,
    failed integer NOT NULL DEFAULT 0,
    expired integer NOT NULL DEFAULT 0,
    cancelled integer NOT NULL DEFAULT 0,
    prompt_tokens bigint NOT NULL DEFAULT 0,
    completion_tokens bigint NOT NULL DEFAULT 0,
    cached_tokens bigint NOT NULL DEFAULT 0,
    cached_known integer NOT NULL DEFAULT 0,
    cost_picodollars bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, batch_id, slot)
) WITH (fillfactor = 50);

-- Frozen when the batch is final: the byte offset of every 256th line of one side, for Range requests.
CREATE TABLE output_index (
    tenant_id bigint NOT NULL,
    batch_id bigint NOT NULL,
    side smallint NOT NULL,
    bytes bigint NOT NULL,
    lines integer NOT NULL,
    line integer[] NOT NULL,
    start bigint[] NOT NULL,
    PRIMARY KEY (tenant_id, batch_id, side)
);
