"""Servers that come with slackwater and need no installation: PostgreSQL, and Valkey for Redis's part."""

from slackwater.embedded.errors import EmbeddedServerError
from slackwater.embedded.home import default_home
from slackwater.embedded.postgres import Postgres
from slackwater.embedded.valkey import Valkey

__all__ = ["EmbeddedServerError", "Postgres", "Valkey", "default_home"]
