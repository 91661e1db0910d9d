-- NOLOGIN roles that a process takes per transaction (api) or per connection (workers, duties). They belong to the cluster,
-- so another database may have made them already, and may be making them at this very moment.
DO $$
DECLARE
    r text;
BEGIN
    FOREACH r IN ARRAY ARRAY['sw_gate', 'sw_app', 'sw_admin', 'sw_worker'] LOOP
        BEGIN
            IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = r) THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN NOSUPERUSER NOBYPASSRLS', r);
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
        END;
        IF NOT pg_has_role(current_user, r, 'SET') THEN
            EXECUTE format('GRANT %I TO %I WITH INHERIT FALSE, SET TRUE', r, current_user);
        END IF;
    END LOOP;
END $$;

-- Time-ordered batch ids: milliseconds since 2025 in the high bits, a sequence in the low 22. The week of an id names its partition.
CREATE SEQUENCE batch_sequence AS bigint MINVALUE 0 MAXVALUE 4194303 CYCLE;
CREATE FUNCTION next_batch_id() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT ((extract(epoch FROM clock_timestamp()) * 1000)::bigint - 1735689600000) << 22 | nextval('batch_sequence')
$$;
