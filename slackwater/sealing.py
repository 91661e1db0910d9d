"""Secrets at rest: AES-256-GCM under the master key, bound to the place where they are stored."""

from __future__ import annotations

import base64
import binascii
import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from slackwater.errors import Misconfigured
from slackwater.settings import Settings

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
KEY_ID: Final = b"\x01"


class Sealer:
    """Seals and unseals small secrets. A sealed value opens only under the context it was sealed for.

    Layout: one byte that names the key, twelve of nonce, then ciphertext and tag.
    """

    def __init__(self, master_key: bytes) -> None:
        if len(master_key) != KEY_BYTES:
            raise Misconfigured("the master key must be 32 bytes")
        self._cipher = AESGCM(master_key)

    def seal(self, plain: bytes, context: str) -> bytes:
        """`context` names the place, for example `instance|inst_0199…`: a copy in another row does not open."""
        nonce = os.urandom(NONCE_BYTES)
        return KEY_ID + nonce + self._cipher.encrypt(nonce, plain, KEY_ID + context.encode())

    def unseal(self, sealed: bytes, context: str) -> bytes:
        """What was sealed.

        Raises:
            Misconfigured: another master key or another place, or the bytes were changed.
        """
        nonce, body = sealed[1 : 1 + NONCE_BYTES], sealed[1 + NONCE_BYTES :]
        try:
            if sealed[:1] != KEY_ID:
                raise InvalidTag
            return self._cipher.decrypt(nonce, body, KEY_ID + context.encode())
        except (InvalidTag, ValueError):
            raise Misconfigured("a sealed value does not open with this master key") from None


def sealer_from(settings: Settings) -> Sealer:
    """The sealer of this installation.

    Raises:
        Misconfigured: the master key is not set, or is not 32 bytes in base64.
    """
    if settings.master_key is None:
        raise Misconfigured("SLACKWATER_MASTER_KEY is not set: 32 bytes in base64 seal secrets at rest")
    try:
        key = base64.b64decode(settings.master_key.get_secret_value(), validate=True)
    except (binascii.Error, ValueError):
        raise Misconfigured("SLACKWATER_MASTER_KEY is not base64") from None
    return Sealer(key)
