-- The outbox: written in the transaction of the fact. `body` is what is sent, byte for byte, on every attempt.
CREATE TABLE event (
    tenant_id bigint NOT NULL REFERENCES tenant (id),
    id bigint GENERATED ALWAYS AS IDENTITY,
    public_id text NOT NULL,
    type text NOT NULL,
    batch_id bigint,
    body bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, public_id),
    UNIQUE (tenant_id, batch_id, type)
);

-- Where a subscriber wants events. With `batch_id` it is the `webhook` of one batch. `url` is sealed.
CREATE TABLE endpoint (
    tenant_id bigint NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    project_id bigint NOT NULL,
    public_id text NOT NULL,
    batch_id bigint,
    name text NOT NULL,
    url bytea NOT NULL,
    event_types text[] NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    disabled_at timestamptz,
    disabled_reason text,
    deleted_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, public_id),
    FOREIGN KEY (tenant_id, project_id) REFERENCES project (tenant_id, id)
);

CREATE TABLE secret (
    tenant_id bigint NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    endpoint_id bigint NOT NULL,
    sealed bytea NOT NULL,
    hint text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, endpoint_id) REFERENCES endpoint (tenant_id, id)
);
CREATE INDEX secret_by_endpoint ON secret (tenant_id, endpoint_id);

-- One event to one endpoint. `state`: 0 pending, 1 delivered, 2 exhausted, 3 dropped (the endpoint is deleted).
-- Only the holder of `token` may record an attempt's end; while it is held, `next_at` is when that claim's lease ends.
CREATE TABLE delivery (
    tenant_id bigint NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    public_id text NOT NULL,
    event_id bigint NOT NULL,
    endpoint_id bigint NOT NULL,
    state smallint NOT NULL DEFAULT 0,
    attempts smallint NOT NULL DEFAULT 0,
    next_at timestamptz NOT NULL DEFAULT now(),
    token uuid,
    delivered_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, public_id),
    UNIQUE (tenant_id, event_id, endpoint_id),
    FOREIGN KEY (tenant_id, event_id) REFERENCES event (tenant_id, id),
    FOREIGN KEY (tenant_id, endpoint_id) REFERENCES endpoint (tenant_id, id)
);
-- Claims walk endpoint by endpoint, so that one with a long queue is passed in one step.
CREATE INDEX delivery_due ON delivery (tenant_id, endpoint_id, next_at, id) WHERE state = 0;
CREATE INDEX delivery_in_flight ON delivery (tenant_id, endpoint_id, next_at) WHERE state = 0 AND token IS NOT NULL;

CREATE TABLE delivery_attempt (
    tenant_id bigint NOT NULL,
    delivery_id bigint NOT NULL,
    n smallint NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    seconds real NOT NULL,
    http smallint,
    error text,
    reply bytea,
    PRIMARY KEY (tenant_id, delivery_id, n),
    FOREIGN KEY (tenant_id, delivery_id) REFERENCES delivery (tenant_id, id)
);
