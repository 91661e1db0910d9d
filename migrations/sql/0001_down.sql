DROP TABLE audit, attempt, ledger, decision, live_load, gateway, "grant", worker, instance_model, instance, delivery_attempt, delivery, secret, endpoint,
    event, lease, segment, result, request, output_index, progress, batch_model, lane, batch, file_chunk, file, price, model_access, model,
    api_key, project, tenant;
DROP FUNCTION make_partitions(bigint), drop_empty_partitions(bigint), next_batch_id(), current_tenant();
DROP SEQUENCE batch_sequence;
-- Roles belong to the cluster: they go only where no other database still grants them anything.
DO $$
DECLARE
    r text;
BEGIN
    FOREACH r IN ARRAY ARRAY['sw_gate', 'sw_app', 'sw_admin', 'sw_worker'] LOOP
        BEGIN
            EXECUTE format('DROP ROLE IF EXISTS %I', r);
        EXCEPTION WHEN dependent_objects_still_exist OR insufficient_privilege THEN NULL;
        END;
    END LOOP;
END $$;
