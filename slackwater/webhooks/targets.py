"""What a webhook URL may be, as far as the text alone tells. The address is judged again at every connect (`addresses`)."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final

from yarl import URL

from slackwater.errors import InvalidRequest
from slackwater.settings import Settings
from slackwater.webhooks.addresses import PORTS, Address, Cidr, allow_list, is_allowed, is_forbidden

MAX_URL_CHARACTERS: Final = 2048
_UNPRINTABLE: Final = re.compile(r"[\x00-\x20\x7f-\xa0\\]")


def checked(url: str, settings: Settings) -> str:
    """The URL as it is stored and called: host in ASCII, no fragment. The parser is the sender's own.

    Any port is accepted for an address on the operator's allow-list, and for a host name when there is such a list: whether the name
    leads there is decided at connect.

    Raises:
        InvalidRequest: the URL may not be a webhook target; the message says why and does not repeat it.
    """
    target = _parsed(url)
    allow = allow_list(settings.webhook_allow)
    if target.scheme != "https" and not (target.scheme == "http" and settings.webhook_allow_http):
        raise _refused("must begin with https://")
    if target.user is not None or target.password is not None:
        raise _refused("must not carry a user name or password")
    _check_host((target.raw_host or "").rstrip(".").lower(), target.port, allow)
    return str(target.with_fragment(None))


def _parsed(url: str) -> URL:
    if len(url) > MAX_URL_CHARACTERS:
        raise _refused(f"must have at most {MAX_URL_CHARACTERS} characters")
    if _UNPRINTABLE.search(url):
        raise _refused("must not hold spaces, control characters or backslashes")
    try:
        target = URL(url)
        usable = bool(target.raw_host) and target.port is not None
    except ValueError:
        raise _refused("is not a URL") from None
    if not usable:
        raise _refused("must name a host, and begin with https://")
    return target


def _check_host(host: str, port: int | None, allow: Sequence[Cidr]) -> None:
    address = _literal(host)
    if address is not None and is_forbidden(address, allow):
        raise _refused("names an address that webhooks may not reach")
    if address is None and _is_local(host) and not allow:
        raise _refused("names a host that webhooks may not reach")
    opened = bool(allow) if address is None else is_allowed(address, allow)
    if port not in PORTS and not opened:
        raise _refused("must use port 80, 443, 8080 or 8443")


def _is_local(host: str) -> bool:
    return host == "localhost" or host.endswith((".localhost", ".local", ".internal"))


def _literal(host: str) -> Address | None:
    """The address when `host` is one. Other spellings (hex, octal, short, one integer) are refused: resolvers differ on them."""
    try:
        return ip_address(host)
    except ValueError:
        pass
    if ":" in host or "%" in host:
        raise _refused("names an address with a zone or in a broken form")
    try:
        socket.inet_aton(host)
    except (OSError, UnicodeError):
        return None
    raise _refused("spells an IPv4 address in another form than four decimal numbers")


def _refused(why: str) -> InvalidRequest:
    return InvalidRequest(f"The webhook URL {why}.", code="invalid_webhook_url", param="url")
