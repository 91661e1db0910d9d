-- Who used what, written with the results or the live call; kept when they are purged. No references, for the same reason.
CREATE TABLE ledger (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    tenant_id bigint NOT NULL,
    project_id bigint NOT NULL,
    api_key_id bigint,
    flow text NOT NULL,
    model_id integer NOT NULL,
    batch_id bigint,
    requests integer NOT NULL,
    prompt_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    cost_picodollars bigint NOT NULL
);
CREATE INDEX ledger_by_time ON ledger (at);
CREATE INDEX ledger_by_batch ON ledger (tenant_id, batch_id);

-- Every run that did not end in a result.
CREATE TABLE attempt (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id bigint NOT NULL,
    batch_id bigint NOT NULL,
    line integer NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    worker_id integer,
    instance_id integer,
    why text NOT NULL,
    http smallint,
    wasted_tokens integer NOT NULL DEFAULT 0
);
CREATE INDEX attempt_by_line ON attempt (tenant_id, batch_id, line);

CREATE TABLE audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id bigint,
    at timestamptz NOT NULL DEFAULT now(),
    actor text NOT NULL,
    action text NOT NULL,
    object text NOT NULL,
    details json NOT NULL DEFAULT '{}'
);
CREATE INDEX audit_by_tenant ON audit (tenant_id, at);
