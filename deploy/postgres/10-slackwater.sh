#!/bin/sh
# Run once, by the postgres image, on an empty volume: the login role owns its database, may make the roles that
# the migrations need, and is no superuser, so that row-level security binds it.
set -eu
psql -v ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres \
    -v password="$SLACKWATER_DB_PASSWORD" <<'SQL'
CREATE ROLE slackwater LOGIN NOSUPERUSER CREATEROLE PASSWORD :'password';
CREATE DATABASE slackwater OWNER slackwater;
SQL
