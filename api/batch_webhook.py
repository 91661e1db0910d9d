"""The `webhook` of a batch: an endpoint of its own for the four final events, made in the batch's transaction."""

from __future__ import annotations

from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.outbox import EVENT_TYPES
from slackwater.sealing import sealer_from
from slackwater.settings import Settings
from slackwater.tenancy.keys import Principal
from slackwater.webhooks import endpoints


async def attach(
    connection: AsyncConnection, settings: Settings, caller: Principal, batch_id: int, url: str
) -> dict[str, Any]:
    """What the reply to the create says of the webhook; the signing secret is shown this once.

    Raises:
        InvalidRequest: the URL may not be a target.
        Misconfigured: there is no master key to seal it with.
    """
    created = await endpoints.create(
        connection,
        sealer=sealer_from(settings),
        settings=settings,
        tenant_id=caller.tenant_id,
        project_id=caller.project_id,
        url=url,
        event_types=list(EVENT_TYPES),
        batch_id=batch_id,
    )
    return {"id": created.public_id, "signing_secret": created.signing_secret}
