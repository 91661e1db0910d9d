"""Settings, read once from the environment (`SLACKWATER_…`). Each carries its unit, its bounds and its reason."""

from __future__ import annotations

from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from slackwater.errors import Misconfigured

Seconds = Annotated[float, Field(gt=0)]
MIB = 1 << 20


class Settings(BaseSettings):
    """Everything an operator may set; a command-line flag sets the same names."""

    model_config = SettingsConfigDict(env_prefix="SLACKWATER_", extra="ignore", hide_input_in_errors=True)

    database_url: SecretStr | None = Field(
        None, description="A libpq URL. Without it `slackwater up` starts its own PostgreSQL."
    )
    redis_url: SecretStr | None = Field(
        None, description="Carries wake-ups and Celery's messages; may be wiped at any moment."
    )
    data_dir: Path = Field(
        Path("~/.local/share/slackwater"),
        description="Where the embedded PostgreSQL and the master key live; unless set, `/var/lib/slackwater` as root.",
    )
    master_key: SecretStr | None = Field(None, description="32 bytes in base64: seals secrets and target URLs at rest.")

    host: str = Field("127.0.0.1", description="The address the API listens on.")
    port: int = Field(8000, ge=0, le=65535, description="The port of the API; 0 takes a free one.")

    max_file_bytes: int = Field(200 * MIB, gt=0, description="Largest upload, in bytes.")
    max_line_bytes: int = Field(16 * MIB, gt=0, description="Longest line of a batch file, in bytes.")
    max_requests: int = Field(50_000, gt=0, description="Most requests in one batch.")
    max_body_bytes: int = Field(1 * MIB, gt=0, description="Largest JSON body of an API call, in bytes.")
    max_part_bytes: int = Field(64 * MIB, gt=0, description="Largest part of an upload in parts, in bytes.")
    max_uploads_per_key: int = Field(16, ge=1, description="Most uploads of one key at once, in one API process.")
    max_inline_bytes: int = Field(
        32 * MIB, gt=0, description="Largest body that brings its requests in line, in bytes."
    )
    upload_idle_seconds: Seconds = Field(30.0, description="A client that sends nothing for so long is cut off.")

    lease_seconds: Seconds = Field(15.0, description="How long a claim is held without a heartbeat.")
    grace_seconds: Seconds = Field(
        3.0, description="How long a stopping worker lets requests finish before it hands them back."
    )
    claim_horizon_seconds: Seconds = Field(2.0, description="A claim takes what will start within so many seconds.")
    request_timeout_seconds: Seconds = Field(600.0, description="Longest run of one request on an instance.")
    max_slots: int = Field(32, ge=1, le=4096, description="Most requests of one worker in flight at once.")
    max_attempts: int = Field(3, ge=1, le=100, description="Runs that burn an attempt before a line fails for good.")

    signal_max_age_seconds: Seconds = Field(1.0, description="A required signal older than this holds.")
    signal_lost_seconds: Seconds = Field(5.0, description="A required signal older than this hands work back.")

    webhook_timeout_seconds: Seconds = Field(20.0, description="One delivery attempt in all, its reply included.")
    webhook_allow: tuple[str, ...] = Field((), description="Private CIDRs that webhooks may reach.")
    webhook_allow_http: bool = Field(False, description="Permit plain http targets.")

    log_format: str = Field("json", pattern="^(json|console)$", description="json, or console for a person.")

    @cached_property
    def dsn(self) -> str:
        """The database's URL.

        Raises:
            Misconfigured: none is set.
        """
        if self.database_url is None:
            raise Misconfigured(
                "SLACKWATER_DATABASE_URL is not set (or run `slackwater up`, which brings its own PostgreSQL;"
                " where it runs with `--data DIR`, set SLACKWATER_DATA_DIR=DIR)"
            )
        return self.database_url.get_secret_value()


@lru_cache(maxsize=1)
def settings() -> Settings:
    """The settings of this process."""
    return Settings()
