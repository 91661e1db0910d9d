CREATE TABLE tenant (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    public_id text NOT NULL UNIQUE,
    name text NOT NULL UNIQUE,
    weight integer NOT NULL DEFAULT 1 CHECK (weight > 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    suspended_at timestamptz
);

CREATE TABLE project (
    tenant_id bigint NOT NULL REFERENCES tenant (id),
    id bigint GENERATED ALWAYS AS IDENTITY,
    public_id text NOT NULL,
    name text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, public_id),
    UNIQUE (tenant_id, name)
);

-- `digest` is sha256 of the whole key: 256 random bits need no slow hash. `public_id` is the part that may be shown and looked up.
CREATE TABLE api_key (
    tenant_id bigint NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    project_id bigint NOT NULL,
    public_id text NOT NULL UNIQUE,
    digest bytea NOT NULL,
    last4 text NOT NULL,
    name text NOT NULL,
    scopes text[] NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    not_before timestamptz,
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, project_id) REFERENCES project (tenant_id, id)
);

CREATE TABLE model (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    is_open boolean NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- Who may use a model that is not open to all.
CREATE TABLE model_access (
    tenant_id bigint NOT NULL REFERENCES tenant (id),
    model_id integer NOT NULL REFERENCES model (id),
    PRIMARY KEY (tenant_id, model_id)
);

-- Picodollars (1e-12 dollar) a token, so that sums are exact integers. Insert-only: the newest row not younger than a batch is its price.
CREATE TABLE price (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    model_id integer NOT NULL REFERENCES model (id),
    input_picodollars bigint NOT NULL CHECK (input_picodollars >= 0),
    cached_picodollars bigint NOT NULL CHECK (cached_picodollars >= 0),
    output_picodollars bigint NOT NULL CHECK (output_picodollars >= 0),
    valid_from timestamptz NOT NULL DEFAULT now(),
    UNIQUE (model_id, valid_from)
);
