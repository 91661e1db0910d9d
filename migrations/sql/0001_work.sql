-- Insert-only. `position` is the order of running. `chunk`, `start` and `length` say where the bytes of `body` lie in the input file;
-- a body that is longer than the rest of its chunk goes on in the chunks after it.
CREATE TABLE request (
    tenant_id bigint NOT NULL,
    batch_id bigint NOT NULL,
    position integer NOT NULL,
    line integer NOT NULL,
    chunk integer NOT NULL,
    start integer NOT NULL,
    length integer NOT NULL,
    model_id integer NOT NULL,
    est_tokens integer NOT NULL,
    custom_id text NOT NULL,
    PRIMARY KEY (tenant_id, batch_id, position)
) PARTITION BY RANGE (batch_id);

-- Insert-only. The primary key is "exactly one result per request".
CREATE TABLE result (
    tenant_id bigint NOT NULL,
    batch_id bigint NOT NULL,
    line integer NOT NULL,
    outcome smallint NOT NULL,
    http smallint,
    prompt_tokens integer NOT NULL,
    completion_tokens integer NOT NULL,
    cached_tokens integer,
    attempt smallint NOT NULL,
    instance_id integer,
    at timestamptz NOT NULL DEFAULT now(),
    body bytea NOT NULL,
    PRIMARY KEY (tenant_id, batch_id, line)
) PARTITION BY RANGE (batch_id);
ALTER TABLE result ALTER body SET STORAGE EXTERNAL;

-- Ready work (`state` 0), or work delayed (3) until its `run_at`; what is done is gone, what is claimed stands in `lease`.
-- `first` and `n` are in no index, so that the split of a claim is a HOT update.
CREATE TABLE segment (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id bigint NOT NULL,
    batch_id bigint NOT NULL,
    model_id integer NOT NULL,
    rank integer NOT NULL,
    first integer NOT NULL,
    n smallint NOT NULL CHECK (n BETWEEN 1 AND 64),
    state smallint NOT NULL DEFAULT 0,
    rescues smallint NOT NULL DEFAULT 0,
    deaths smallint NOT NULL DEFAULT 0,
    attempts smallint NOT NULL DEFAULT 0,
    deferrals smallint NOT NULL DEFAULT 0,
    run_at timestamptz
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000);
CREATE INDEX segment_ready ON segment (model_id, batch_id, rank) WHERE state = 0;
CREATE INDEX segment_delayed ON segment (run_at) WHERE state = 3;
CREATE INDEX segment_by_batch ON segment (batch_id);

-- The timed right to the range `first` … `first + n - 1`. `alone` says that it was the only work in its engine when it began.
CREATE TABLE lease (
    token uuid PRIMARY KEY,
    worker_id integer NOT NULL,
    tenant_id bigint NOT NULL,
    batch_id bigint NOT NULL,
    model_id integer NOT NULL,
    first integer NOT NULL,
    n smallint NOT NULL,
    rescues smallint NOT NULL,
    deaths smallint NOT NULL,
    attempts smallint NOT NULL,
    deferrals smallint NOT NULL,
    is_alone boolean NOT NULL DEFAULT false,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX lease_by_batch ON lease (batch_id);

-- Makes the partitions of the week of `batch_id`, once; as their owner, so that the roles of processes need no right to create tables.
CREATE FUNCTION make_partitions(batch_id bigint) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    week bigint := (batch_id >> 22) / 604800000;
    parent text;
    child text;
BEGIN
    FOREACH parent IN ARRAY ARRAY['request', 'result'] LOOP
        child := parent || '_w' || lpad(week::text, 4, '0');
        IF to_regclass('public.' || child) IS NULL THEN
            PERFORM pg_advisory_xact_lock(hashtext('slackwater.' || child));
            -- Asked of the table itself: an advisory lock does not refresh what this session remembers of the catalogue.
            IF NOT EXISTS (SELECT 1 FROM pg_class WHERE relname = child AND relnamespace = 'public'::regnamespace) THEN
                EXECUTE format('CREATE TABLE public.%I PARTITION OF public.%I FOR VALUES FROM (%s) TO (%s)
                                WITH (autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 50000)',
                               child, parent, (week * 604800000) << 22, ((week + 1) * 604800000) << 22);
            END IF;
        END IF;
    END LOOP;
END $$;
REVOKE ALL ON FUNCTION make_partitions(bigint) FROM PUBLIC;

-- Drops the partitions of a week when both are empty, which is asked again once nobody can write to them. True when they are gone;
-- false also where somebody uses them: waiting for a reader while others queue behind is worse than the next time.
CREATE FUNCTION drop_empty_partitions(week bigint) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    requests text := 'request_w' || lpad(week::text, 4, '0');
    results text := 'result_w' || lpad(week::text, 4, '0');
    used boolean;
BEGIN
    IF to_regclass('public.' || requests) IS NULL THEN RETURN true; END IF;
    FOR look IN 1..2 LOOP
        EXECUTE format('SELECT EXISTS (SELECT 1 FROM public.%I) OR EXISTS (SELECT 1 FROM public.%I)', requests, results) INTO used;
        IF used THEN RETURN false; END IF;
        EXECUTE format('LOCK TABLE public.%I, public.%I IN ACCESS EXCLUSIVE MODE NOWAIT', requests, results);
    END LOOP;
    EXECUTE format('DROP TABLE public.%I, public.%I', requests, results);
    RETURN true;
EXCEPTION
    WHEN undefined_table THEN RETURN true;
    WHEN lock_not_available THEN RETURN false;
END $$;
REVOKE ALL ON FUNCTION drop_empty_partitions(bigint) FROM PUBLIC;

SELECT make_partitions(next_batch_id());
