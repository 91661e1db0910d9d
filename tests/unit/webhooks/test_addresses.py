"""Which addresses webhooks may reach: no private one, in no spelling, unless the operator opened it; some never."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import Misconfigured
from slackwater.webhooks.addresses import FORBIDDEN, Cidr, allow_list, is_forbidden, is_reachable

PRIVATE = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "168.63.129.16",
    "100.100.100.200",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::169.254.169.254",
    "::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a00:1",
    "2002:a9fe:a9fe::",
    "2002:7f00:1::1",
    "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1",
    "3fff::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fec0::1",
    "ff02::1",
    "5f00::1",
    "100::1",
    "2606:4700::5efe:7f00:1",
]
PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "100.63.255.255",
    "100.128.0.1",
    "172.15.0.1",
    "172.32.0.1",
    "2606:4700::1",
    "2a00:1450::1",
]
NEVER = [
    "169.254.169.254",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::",
    "::169.254.169.254",
    "168.63.129.16",
    "192.0.0.192",
    "100.100.100.200",
    "fe80::1",
    "fd00:ec2::254",
    "224.0.0.1",
    "ff02::1",
    "0.0.0.0",
    "::",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_forbidden(address: str) -> None:
    assert is_forbidden(ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_not_forbidden(address: str) -> None:
    assert not is_forbidden(ip_address(address))


@pytest.mark.parametrize("address", NEVER)
def test_no_allow_list_opens_link_local_metadata_or_multicast(address: str) -> None:
    assert is_forbidden(ip_address(address), allow_list(["0.0.0.0/0", "::/0"]))


@given(st.integers(0, 2**32 - 1))
def test_a_mapped_address_is_judged_as_the_v4_address_it_means(number: int) -> None:
    plain, mapped = IPv4Address(number), IPv6Address((0xFFFF << 32) | number)

    assert is_forbidden(mapped) == is_forbidden(plain)
    assert is_forbidden(mapped, allow_list(["10.0.0.0/8"])) == is_forbidden(plain, allow_list(["10.0.0.0/8"]))


@given(st.sampled_from([network for network in FORBIDDEN if network.version == 4]), st.data())
def test_no_tunnel_leads_into_a_forbidden_network(network: Cidr, data: st.DataObject) -> None:
    low, high = int(network[0]), int(network[-1])
    number = data.draw(st.integers(low, high))

    for tunnelled in (0x2002 << 112 | number << 80, 0x64FF9B << 96 | number, number):
        assert is_forbidden(IPv6Address(tunnelled))


def test_an_allowed_network_opens_its_addresses_and_no_others() -> None:
    allow = allow_list(["10.1.0.0/16", "fd12::/16"])

    assert not is_forbidden(ip_address("10.1.2.3"), allow)
    assert not is_forbidden(ip_address("fd12::1"), allow)
    assert is_forbidden(ip_address("10.2.0.1"), allow)


@pytest.mark.parametrize(
    ("host", "port", "reachable"),
    [
        ("1.1.1.1", 443, True),
        ("1.1.1.1", 8443, True),
        ("1.1.1.1", 5432, False),
        ("1.1.1.1", 22, False),
        ("10.1.0.9", 5000, True),
        ("10.2.0.9", 443, False),
        ("fe80::1%eth0", 443, False),
        ("not an address", 443, False),
    ],
)
def test_only_an_allowed_address_may_listen_on_any_port(host: str, port: int, reachable: bool) -> None:
    assert is_reachable(host, port, allow_list(["10.1.0.0/16"])) is reachable


def test_an_allow_list_that_is_none_is_a_misconfiguration() -> None:
    with pytest.raises(Misconfigured):
        allow_list(["10.0.0.1/8"])
