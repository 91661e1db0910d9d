-- Model servers. They serve all tenants, so these tables carry none. `api_key` is sealed. `gpus` are UUIDs; none declared means none sampled.
CREATE TABLE instance (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    public_id text NOT NULL UNIQUE,
    name text NOT NULL UNIQUE,
    engine text NOT NULL CHECK (engine IN ('openai_http', 'local', 'echo')),
    url text,
    api_key bytea,
    gpus text[] NOT NULL DEFAULT '{}',
    max_slots integer NOT NULL DEFAULT 16 CHECK (max_slots > 0),
    mode text NOT NULL DEFAULT 'balanced' CHECK (mode IN ('strict', 'balanced', 'deadline')),
    options json NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now(),
    disabled_at timestamptz
);

-- A model that an instance serves, and the name its server knows it by. Paused: the server is ill for this model until then.
CREATE TABLE instance_model (
    instance_id integer NOT NULL REFERENCES instance (id) ON DELETE CASCADE,
    model_id integer NOT NULL REFERENCES model (id),
    upstream_name text NOT NULL,
    paused_until timestamptz,
    paused_reason text,
    PRIMARY KEY (instance_id, model_id)
);

CREATE TABLE worker (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instance_id integer NOT NULL REFERENCES instance (id) ON DELETE CASCADE,
    host text NOT NULL,
    pid integer NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    heartbeat_at timestamptz NOT NULL DEFAULT now(),
    stopped_at timestamptz
) WITH (fillfactor = 50);

-- What each worker may use and has in flight; own load on an instance is the sum of the fresh rows. Lost in a crash, on purpose.
CREATE UNLOGGED TABLE "grant" (
    worker_id integer PRIMARY KEY,
    instance_id integer NOT NULL,
    asked integer NOT NULL,
    slots integer NOT NULL,
    in_flight integer NOT NULL,
    at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- One row per running api process: while any is registered, live figures are a required signal.
CREATE TABLE gateway (
    id text PRIMARY KEY,
    host text NOT NULL,
    pid integer NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    heartbeat_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- Live requests through one api process on one instance, written four times a second, idle too. Times are seconds.
CREATE UNLOGGED TABLE live_load (
    instance_id integer NOT NULL,
    gateway_id text NOT NULL,
    running integer NOT NULL,
    waiting integer NOT NULL,
    ttft_p99_seconds real,
    itl_p99_seconds real,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (instance_id, gateway_id)
) WITH (fillfactor = 50);

-- What was decided and why, once a second for each worker and model; a decision older than 5 s says nothing.
CREATE UNLOGGED TABLE decision (
    worker_id integer NOT NULL,
    instance_id integer NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    admitted boolean NOT NULL,
    reason text,
    slots integer NOT NULL DEFAULT 0,
    prompt_tokens integer NOT NULL DEFAULT 0,
    details json NOT NULL DEFAULT '{}',
    PRIMARY KEY (worker_id, at)
);
CREATE INDEX decision_by_instance ON decision (instance_id, at);
