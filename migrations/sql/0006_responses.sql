-- `response`: what a background response was asked for, but for its input; null for a batch that a client made as one.
-- `gone_at`: from when on the response is there no more. Set at its end, or when it is deleted; then the purge removes the row and all it has.
ALTER TABLE batch ADD COLUMN response json, ADD COLUMN gone_at timestamptz;
-- Responses are many and in no list.
CREATE INDEX batch_listed ON batch (tenant_id, id) WHERE response IS NULL;
CREATE INDEX batch_gone ON batch (gone_at) WHERE gone_at IS NOT NULL;
GRANT UPDATE (gone_at) ON batch TO sw_app;
