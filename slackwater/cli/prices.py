"""`slackwater prices`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

import typer

from slackwater.cli.administer import administer
from slackwater.cli.output import AsJson, show

app = typer.Typer(name="prices", help="What tokens cost, in dollars a million.", no_args_is_help=True)
COLUMNS = ("model", "input", "cached", "output", "valid_from")
KINDS = ("input", "cached", "output")


def _amount(text: str) -> Decimal:
    """Dollars as a person writes them, exactly."""
    try:
        amount = Decimal(text)
    except InvalidOperation:
        raise typer.BadParameter("dollars a million tokens, for example 0.15") from None
    if not 0 <= amount < 1_000_000:
        raise typer.BadParameter("at least 0 and less than a million dollars")
    return amount


Dollars = Annotated[Decimal, typer.Option(parser=_amount, metavar="DOLLARS", help="A million tokens.")]


@app.command()
def create(
    model: str,
    input_: Annotated[Decimal, typer.Option("--input", parser=_amount, metavar="DOLLARS", help="A million tokens.")],
    output: Dollars,
    cached: Annotated[
        Decimal | None, typer.Option(parser=_amount, metavar="DOLLARS", help="Without it, as other input.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set the price of a model for batches created from now on; older prices stay."""
    from slackwater.pricing import Price
    from slackwater.tenancy import models

    price = Price.per_million(input_, output, cached)
    row = administer(lambda connection: models.set_price(connection, model, price))
    _show([row | {"model": model}], as_json=as_json)


@app.command("list")
def list_(
    model: Annotated[str | None, typer.Option(help="Of this model only.")] = None, as_json: AsJson = False
) -> None:
    """List the prices, the newest first."""
    from slackwater.tenancy import models

    _show(administer(lambda connection: models.prices(connection, model)), as_json=as_json)


def _show(rows: Iterable[Mapping[str, Any]], *, as_json: bool) -> None:
    from slackwater.pricing import dollars

    shown = [dict(row) | {kind: dollars(row[f"{kind}_picodollars"] * 1_000_000) for kind in KINDS} for row in rows]
    show(shown, COLUMNS, as_json=as_json)
