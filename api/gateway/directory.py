"""Which instances serve a model, and how to reach them; looked up at most once a second."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import text

from slackwater.errors import NotFound, Unavailable
from slackwater.sealing import sealer_from
from slackwater.settings import Settings
from slackwater.storage.database import Database
from slackwater.tenancy import models
from slackwater.tenancy.instances import context_of

FRESH_SECONDS: Final = 1.0
SERVING: Final = text("""
SELECT i.id, i.public_id, i.name, i.url, i.api_key, m.name AS model, s.upstream_name
  FROM instance i JOIN instance_model s ON s.instance_id = i.id JOIN model m ON m.id = s.model_id
 WHERE i.disabled_at IS NULL AND i.engine = 'openai_http'
 ORDER BY i.id
""")


@dataclass(frozen=True, slots=True)
class Upstream:
    """A model on an instance. `api_key` is in the clear here, and in no log."""

    instance_id: int
    name: str
    base_url: str
    api_key: str | None = field(repr=False)
    upstream_name: str


@dataclass
class Directory:
    """Finds upstreams. Instances and permissions are remembered for a second."""

    database: Database
    settings: Settings
    _serving: dict[str, list[Upstream]] = field(default_factory=dict)
    _read_at: float = float("-inf")
    _permitted: dict[tuple[int, str], float] = field(default_factory=dict)

    async def serving(self, tenant_id: int, model: str) -> Sequence[Upstream]:
        """The upstreams of a model this tenant may use.

        Raises:
            NotFound: no such model, or one the tenant may not use.
            Unavailable: no enabled instance with an address serves it.
        """
        await self._permit(tenant_id, model)
        if time.monotonic() - self._read_at > FRESH_SECONDS:
            await self._read()
        found = self._serving.get(model)
        if not found:
            raise Unavailable("No instance with a URL serves this model right now.", param="model")
        return found

    async def _permit(self, tenant_id: int, model: str) -> None:
        now = time.monotonic()
        if now - self._permitted.get((tenant_id, model), float("-inf")) < FRESH_SECONDS:
            return
        async with self.database.tenant(tenant_id) as connection:
            usable = await models.usable(connection, tenant_id, model)
        if not usable:
            raise NotFound("The model does not exist or you may not use it.", code="model_not_found", param="model")
        if len(self._permitted) > 4096:
            self._permitted.clear()
        self._permitted[tenant_id, model] = now

    async def _read(self) -> None:
        async with self.database.gate() as connection:
            rows = (await connection.execute(SERVING)).mappings().all()
        serving: dict[str, list[Upstream]] = {}
        for row in rows:
            key = row["api_key"]
            clear = None
            if key is not None:
                clear = sealer_from(self.settings).unseal(key, context_of(row["public_id"])).decode()
            base = row["url"].rstrip("/").removesuffix("/v1")
            upstream = Upstream(row["id"], row["name"], base, clear, row["upstream_name"])
            serving.setdefault(row["model"], []).append(upstream)
        self._serving, self._read_at = serving, time.monotonic()
