-- What stood for a response would now be a batch: it is ended as any other, and nobody reads it.
REVOKE UPDATE (gone_at) ON batch FROM sw_app;
ALTER TABLE batch DROP COLUMN response, DROP COLUMN gone_at;
