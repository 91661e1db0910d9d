"""The shape of an API key: `sk-<env>_<8 public>_<32 random>_<crc32>`. Pure.

The checksum lets a scanner or a log filter know a key when it sees one, and lets a mistyped one be refused without a look-up.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import string
import zlib
from dataclasses import dataclass
from typing import Final

ALPHABET: Final = string.digits + string.ascii_letters
PUBLIC_LENGTH: Final = 8
RANDOM_LENGTH: Final = 43  # 43 digits of base 62 hold the 256 bits of 32 random bytes.
PATTERN: Final = re.compile(r"sk-[a-z0-9]{1,16}_([0-9A-Za-z]{8})_[0-9A-Za-z]{43}_[0-9a-f]{8}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Minted:
    """A new key. `text` is shown once and never stored; `digest` is its sha256."""

    text: str
    public_id: str
    digest: bytes
    last4: str


def mint(env: str = "live") -> Minted:
    """A key of 256 random bits; `env` is one to sixteen of a-z and 0-9."""
    public_id = "".join(secrets.choice(ALPHABET) for _ in range(PUBLIC_LENGTH))
    head = f"sk-{env}_{public_id}_{_base62(secrets.token_bytes(32))}"
    text = f"{head}_{_checksum(head)}"
    return Minted(text, public_id, digest_of(text), text[-4:])


def public_id_of(text: str) -> str | None:
    """The public part of a well-formed key whose checksum is right; None for anything else."""
    found = PATTERN.fullmatch(text)
    head, _, checksum = text.rpartition("_")
    return found[1] if found and checksum == _checksum(head) else None


def digest_of(text: str) -> bytes:
    """sha256 of the whole key."""
    return hashlib.sha256(text.encode()).digest()


def _checksum(head: str) -> str:
    return f"{zlib.crc32(head.encode()):08x}"


def _base62(raw: bytes) -> str:
    number, digits = int.from_bytes(raw, "big"), []
    for _ in range(RANDOM_LENGTH):
        number, digit = divmod(number, len(ALPHABET))
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))
