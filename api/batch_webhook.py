"""The `webhook` of a batch: an endpoint of its own for the four final events, made in the batch's transaction."""

from __future__ import annotations

from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from slackwater.outbox import BATCH_TYPES
from slackwater.sealing import sealer_from
from slackwater.settings import Settings
from slackwater.storage.idempotency import Known
from slackwater.tenancy.keys import Principal
from slackwater.webhooks import endpoints, first_secret


async def attach(
    connection: AsyncConnection, settings: Settings, caller: Principal, batch_id: int, url: str
) -> dict[str, Any]:
    """What the reply to the create says of the webhook; the signing secret is shown here, and to a re-send of this create.

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
        event_types=list(BATCH_TYPES),
        batch_id=batch_id,
    )
    return {"id": created.public_id, "signing_secret": created.signing_secret}


async def shown_again(
    connection: AsyncConnection, settings: Settings, caller: Principal, known: Known
) -> dict[str, Any] | None:
    """What a create that is sent again is told: what the first reply said, which may have been lost.

    The secret is null for another API key than the one that made the batch, and once it was rotated. None: the webhook was deleted.
    """
    tenant_id = caller.tenant_id
    found = await first_secret.of_batch(
        connection, sealer=sealer_from(settings), tenant_id=tenant_id, batch=known.object_id
    )
    if found is None:
        return None
    secret = found.signing_secret if known.api_key_id == caller.key_id else None
    return {"id": found.public_id, "signing_secret": secret}
