-- Creates that a client may send again. With `key` the client named its create; without one, a re-send is known by its caller and body.
-- `replied_at` is set once the reply to a create without a key was written: from then on a re-send of it is a new one.
CREATE TABLE idempotency (
    tenant_id bigint NOT NULL REFERENCES tenant (id),
    id bigint GENERATED ALWAYS AS IDENTITY,
    route text NOT NULL,
    api_key_id bigint NOT NULL,
    key text,
    hash bytea NOT NULL,
    object_id text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    replied_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, route, key)
);
CREATE INDEX idempotency_unreplied ON idempotency (tenant_id, api_key_id, route, hash) WHERE key IS NULL AND replied_at IS NULL;
CREATE INDEX idempotency_by_time ON idempotency (created_at);
ALTER TABLE idempotency ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON idempotency TO sw_app USING (tenant_id = current_tenant()) WITH CHECK (tenant_id = current_tenant());
CREATE POLICY every_tenant ON idempotency TO sw_worker USING (true);
CREATE POLICY administer ON idempotency TO sw_admin USING (true);
GRANT SELECT, INSERT ON idempotency TO sw_app;
GRANT UPDATE (replied_at) ON idempotency TO sw_app;
GRANT SELECT, DELETE ON idempotency TO sw_worker;
GRANT SELECT ON idempotency TO sw_admin;

-- The table above takes over from these, which were for batches only and never forgot a key.
ALTER TABLE batch DROP COLUMN idempotency_key, DROP COLUMN idempotency_hash;
-- The id of the batch whose lines this one runs again.
ALTER TABLE batch ADD COLUMN retry_of text;

-- A change of priority or window moves a batch of the caller's own to another lane.
GRANT INSERT, UPDATE (priority) ON lane TO sw_app;
GRANT UPDATE (lane_id) ON batch_model TO sw_app;
