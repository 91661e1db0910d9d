"""Names that people give to tenants, projects, keys, models and instances."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from slackwater.errors import InvalidRequest

LONGEST: Final = 128
MODEL: Final = re.compile(r"[A-Za-z0-9@][A-Za-z0-9._:/@+-]{0,127}", re.ASCII)


def checked(name: str, param: str = "name") -> str:
    """`name` in NFC without outer blanks: 1 to 128 characters, none of them a control.

    Raises:
        InvalidRequest: it is empty, too long or holds a control character.
    """
    clean = unicodedata.normalize("NFC", name).strip()
    if not clean or len(clean) > LONGEST or any(unicodedata.category(c).startswith("C") for c in clean):
        raise InvalidRequest(
            f"A name has 1 to {LONGEST} characters and no control characters.", code="invalid_value", param=param
        )
    return clean


def checked_model(name: str, param: str = "model") -> str:
    """A model's name as clients write it in `model`: letters, digits and `._:/@+-`.

    Raises:
        InvalidRequest: it is anything else.
    """
    if not MODEL.fullmatch(name):
        raise InvalidRequest(
            "A model's name has 1 to 128 letters, digits or any of '._:/@+-'.", code="invalid_value", param=param
        )
    return name
