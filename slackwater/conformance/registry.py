"""What a check is, and the list of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from slackwater.conformance.session import Session

Test = Callable[["Session"], None]
EXTENSIONS: Final = "ext."
# What a server may lack without failing: all of ours, and what OpenAI has beside files and batches.
OPTIONAL: Final = (EXTENSIONS, "responses.")
CHECKS: Final[dict[str, Check]] = {}


@dataclass(frozen=True, slots=True)
class Check:
    """One named question to a server. `expected` says what OpenAI answers (an `ext.` check: what we answer)."""

    name: str
    section: str
    expected: str
    test: Test = field(repr=False, compare=False)

    @property
    def is_extension(self) -> bool:
        return self.name.startswith(EXTENSIONS)

    @property
    def is_optional(self) -> bool:
        return self.name.startswith(OPTIONAL)


@dataclass(frozen=True, slots=True)
class Group:
    """A dotted prefix of names, and the section of the wire contract that its checks cite."""

    prefix: str
    section: str

    def check(self, expected: str, *, section: str | None = None) -> Callable[[Test], Test]:
        """Register a function as the check `prefix.function_name`.

        Raises:
            ValueError: there is one of that name.
        """

        def register(test: Test) -> Test:
            self.add(test.__name__, expected, test, section=section)
            return test

        return register

    def add(self, word: str, expected: str, test: Test, *, section: str | None = None) -> None:
        """Register `test` under a name of its own: for checks that differ in their values only."""
        name = f"{self.prefix}.{word}"
        if name in CHECKS:
            raise ValueError(f"there are two checks named {name}")
        CHECKS[name] = Check(name, f"WIRE {section or self.section}", expected, test)


def chosen(words: Iterable[str], *, extensions: bool) -> list[Check]:
    """The checks whose name begins with one of `words` (all where there are none), in order of their names."""
    begins = tuple(words) or ("",)
    found = [check for name, check in sorted(CHECKS.items()) if name.startswith(begins)]
    return [check for check in found if extensions or not check.is_extension]
