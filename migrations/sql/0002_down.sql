REVOKE UPDATE (lane_id) ON batch_model FROM sw_app;
REVOKE INSERT, UPDATE (priority) ON lane FROM sw_app;
ALTER TABLE batch DROP COLUMN retry_of;
ALTER TABLE batch ADD COLUMN idempotency_key text, ADD COLUMN idempotency_hash bytea, ADD UNIQUE (tenant_id, idempotency_key);
DROP TABLE idempotency;
