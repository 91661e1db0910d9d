"""Which addresses a webhook may reach: pure, and asked at the moment of connecting, when the address is final.

The list is explicit, since `ipaddress.is_global` calls NAT64, 6to4 and IPv4-compatible spellings of private addresses global.
Sources: the IANA special-purpose registries, and the metadata services of the large clouds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from slackwater.errors import Misconfigured

Address = IPv4Address | IPv6Address
Cidr = IPv4Network | IPv6Network

PORTS: Final = frozenset({80, 443, 8080, 8443})


def _networks(*cidrs: str) -> tuple[Cidr, ...]:
    return tuple(ip_network(cidr) for cidr in cidrs)


FORBIDDEN: Final = _networks(
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.31.196.0/24",
    "192.52.193.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "192.175.48.0/24",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "168.63.129.16/32",
    # Of IPv6 only 2000::/3 is routed to the world.
    "::/3",
    "4000::/2",
    "8000::/1",
    "2001::/23",
    "2001:db8::/32",
    "2002::/16",
    "2620:4f:8000::/48",
    "3fff::/20",
)

# Not even an operator's allow-list opens these: link-local, metadata services, multicast, the unspecified address.
NEVER: Final = _networks(
    "0.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/4",
    "255.255.255.255/32",
    "168.63.129.16/32",
    "192.0.0.192/32",
    "100.100.100.200/32",
    "::/128",
    "fe80::/10",
    "fd00:ec2::254/128",
    "fd20:ce::254/128",
    "ff00::/8",
)

_NAT64: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
_COMPATIBLE: Final = IPv6Network("::/96")
_ISATAP: Final = (0x00005EFE, 0x02005EFE)
_LOW32: Final = 0xFFFF_FFFF


def allow_list(cidrs: Iterable[str]) -> tuple[Cidr, ...]:
    """The operator's CIDRs, from `settings.webhook_allow`.

    Raises:
        Misconfigured: one of them is no CIDR.
    """
    try:
        return tuple(ip_network(cidr) for cidr in cidrs)
    except ValueError:
        raise Misconfigured("SLACKWATER_WEBHOOK_ALLOW holds something that is no CIDR") from None


def is_allowed(address: Address, allow: Iterable[Cidr]) -> bool:
    """Whether the operator opened this address. A v4-mapped address counts as the v4 address it means."""
    plain = _unmapped(address)
    return not _within_any(plain, NEVER) and any(plain in network for network in allow)


def is_forbidden(address: Address, allow: Iterable[Cidr] = ()) -> bool:
    """Whether no webhook may connect to `address`: anything that is not of the public internet, unless the operator allowed it."""
    if is_allowed(address, allow):
        return False
    return _within_any(_unmapped(address), FORBIDDEN)


def is_reachable(host: str, port: int, allow: Iterable[Cidr]) -> bool:
    """Whether a connection to this final socket address may be opened.

    An allowed address may listen on any port, a public one only on `PORTS`: receivers of self-hosters choose their port, strangers'
    mail servers and databases are none of ours.
    """
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if is_allowed(address, allow):
        return True
    return port in PORTS and not is_forbidden(address)


def _unmapped(address: Address) -> Address:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _within_any(address: Address, networks: Iterable[Cidr]) -> bool:
    known = tuple(networks)
    return any(meaning in network for meaning in _meanings(address) for network in known)


def _meanings(address: Address) -> Iterator[Address]:
    """The address and every IPv4 address that a translator or a tunnel would turn it into."""
    yield address
    if isinstance(address, IPv4Address):
        return
    number = int(address)
    if any(address in network for network in _NAT64) or (address in _COMPATIBLE and number > 1):
        yield IPv4Address(number & _LOW32)
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    if (number >> 32) & _LOW32 in _ISATAP:
        yield IPv4Address(number & _LOW32)
