"""What a URL's text alone rules out, when an endpoint is saved."""

from __future__ import annotations

import pytest

from slackwater.errors import InvalidRequest
from slackwater.settings import Settings
from slackwater.webhooks.targets import checked

STRICT = Settings(webhook_allow=(), webhook_allow_http=False)
HOME = Settings(webhook_allow=("127.0.0.1/32", "10.0.0.0/8"), webhook_allow_http=True)

LOOPBACK = [
    "https://localhost/",
    "https://LOCALHOST./",
    "https://app.localhost/",
    "https://127.0.0.1/",
    "https://127.0.0.1./",
    "https://127.1/",
    "https://127.0.1/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7f.1/",
    "https://0x7f.0x0.0x0.0x1/",
    "https://0177.0.0.1/",
    "https://017700000001/",
    "https://0/",
    "https://0.0.0.0/",
    "https://[::1]/",
    "https://[::]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:7f00:1]/",
    "https://[::127.0.0.1]/",
    "https://[0:0:0:0:0:0:0:1]/",
    "https://[::1%25lo]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[2002:7f00:1::]/",
    "https://①②⑦.0.0.1/",
    "https://127。0。0。1/",
    "https://user@127.0.0.1/",
    "https://example.com@127.0.0.1/",
]
REFUSED = [
    "",
    "example.com/hook",
    "//example.com/hook",
    "http://example.com/hook",
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://example.com/",
    "javascript:alert(1)",
    "https://",
    "https:///hook",
    "https://user:pw@example.com/",
    "https://example.com:22/",
    "https://example.com:5432/",
    "https://example.com:0/",
    "https://example.com:65536/",
    "https://example.com:port/",
    "https://exa mple.com/",
    "https://example.com/a\r\nHost: x",
    "https://example.com\\@127.0.0.1/",
    "https://example.com/\x00",
    "https://example.com/" + "a" * 2048,
    "https://169.254.169.254/latest/meta-data/",
    "https://metadata.google.internal/",
    "https://[::1/",
]


@pytest.mark.parametrize("url", LOOPBACK + REFUSED)
def test_a_url_that_may_be_no_target_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        checked(url, STRICT)

    assert refusal.value.code == "invalid_webhook_url"
    assert refusal.value.param == "url"


@pytest.mark.parametrize(
    ("url", "stored"),
    [
        ("https://example.com/hook", "https://example.com/hook"),
        ("https://example.com:8443/hook?key=a%20b", "https://example.com:8443/hook?key=a%20b"),
        ("HTTPS://Example.COM/", "https://example.com/"),
        ("https://example.com/hook#part", "https://example.com/hook"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("https://1.1.1.1:8080/", "https://1.1.1.1:8080/"),
    ],
)
def test_a_public_target_is_stored_with_its_host_in_ascii(url: str, stored: str) -> None:
    assert checked(url, STRICT) == stored


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:5000/", "http://10.1.2.3:9999/x", "https://receiver:9000/", "http://localhost:3000/"]
)
def test_an_allow_list_opens_private_targets_on_any_port(url: str) -> None:
    assert checked(url, HOME).startswith(url)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.2:5000/", "http://192.168.0.1/", "http://169.254.169.254/", "http://1.1.1.1:22/", "http://127.1/"],
)
def test_an_allow_list_opens_nothing_else(url: str) -> None:
    with pytest.raises(InvalidRequest):
        checked(url, HOME)


def test_the_refusal_does_not_repeat_the_url() -> None:
    with pytest.raises(InvalidRequest) as refusal:
        checked("https://user:hunter2@example.com/", STRICT)

    assert "hunter2" not in refusal.value.message
