-- Row-level security is the net under scoped queries. A missing or empty setting matches no row.
CREATE FUNCTION current_tenant() RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT nullif(current_setting('app.tenant_id', true), '')::bigint
$$;

DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['project', 'api_key', 'model_access', 'file', 'file_chunk', 'batch', 'lane', 'batch_model', 'progress', 'output_index',
                             'request', 'result', 'segment', 'lease', 'event', 'endpoint', 'secret', 'delivery', 'delivery_attempt',
                             'ledger', 'attempt', 'audit'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY own_tenant ON %I TO sw_app USING (tenant_id = current_tenant()) WITH CHECK (tenant_id = current_tenant())', t);
        EXECUTE format('CREATE POLICY every_tenant ON %I TO sw_worker USING (true) WITH CHECK (true)', t);
        EXECUTE format('CREATE POLICY administer ON %I TO sw_admin USING (true) WITH CHECK (true)', t);
    END LOOP;
END $$;
ALTER TABLE tenant ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_tenant ON tenant TO sw_app USING (id = current_tenant());
CREATE POLICY every_tenant ON tenant TO sw_worker USING (true);
CREATE POLICY administer ON tenant TO sw_admin USING (true) WITH CHECK (true);
CREATE POLICY recognise ON tenant TO sw_gate USING (true);
CREATE POLICY recognise ON project TO sw_gate USING (true);
CREATE POLICY recognise ON api_key TO sw_gate USING (true);

-- The gate finds the key of a caller whose tenant is not known yet, and keeps the figures of live traffic.
GRANT SELECT ON tenant, project, api_key TO sw_gate;
GRANT UPDATE (last_used_at) ON api_key TO sw_gate;
GRANT SELECT ON instance, instance_model, model TO sw_gate;
GRANT SELECT, INSERT, UPDATE, DELETE ON gateway, live_load TO sw_gate;

-- The API on behalf of one tenant. Of the hot tables it may only add its own requests and segments.
GRANT SELECT ON tenant, project, model, model_access, price, lane, batch_model, progress, output_index, request, result, segment, lease,
    event, delivery, delivery_attempt, ledger, attempt, worker, instance_model, decision TO sw_app;
GRANT SELECT (id, public_id, name, engine, gpus, max_slots, mode, created_at, disabled_at) ON instance TO sw_app;
GRANT INSERT ON request, segment, audit TO sw_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON file, endpoint, secret TO sw_app;
GRANT SELECT, INSERT, DELETE ON file_chunk TO sw_app;
GRANT SELECT, INSERT ON batch TO sw_app;
-- Of a batch it may move its state, which the statements of the API do one way only, and what a client may change; never what was asked or what came of it.
GRANT UPDATE (state, cancelling_at, priority, completion_window, expires_at) ON batch TO sw_app;
GRANT UPDATE (state, next_at) ON delivery TO sw_app;
GRANT USAGE ON SEQUENCE batch_sequence TO sw_app;

GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO sw_worker;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO sw_worker;
REVOKE INSERT, UPDATE, DELETE ON tenant, project, api_key, model, model_access, price, audit FROM sw_worker;
GRANT INSERT ON audit TO sw_worker;
REVOKE UPDATE, DELETE ON ledger, attempt FROM sw_worker;
-- What is insert-only stays as it was written: not even a fault of ours can change a result, a request, an event or an uploaded byte.
REVOKE UPDATE ON result, request, event, file_chunk, output_index, delivery_attempt FROM sw_worker;
GRANT DELETE ON attempt TO sw_worker;
GRANT EXECUTE ON FUNCTION make_partitions(bigint), drop_empty_partitions(bigint) TO sw_worker;

GRANT SELECT ON ALL TABLES IN SCHEMA public TO sw_admin;
GRANT INSERT, UPDATE ON tenant, project, api_key, model, price, instance TO sw_admin;
GRANT INSERT, UPDATE, DELETE ON model_access, instance_model, instance TO sw_admin;
GRANT INSERT ON audit TO sw_admin;
