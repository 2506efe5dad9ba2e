"""What each remedy is, for those who choose among them: no torch.

`perfdoctor` reads this outside the job; the probe finds in it the module and the class that do the work.
"""

from .entries import ENTRIES
from .entry import Entry

__all__ = ["BY_NAME", "COMBINED", "ENTRIES", "Entry", "UnknownRemedyError", "described", "entries", "kept", "parse"]

COMBINED = "+"
"""Between the names of remedies that are in place together."""

BY_NAME = {entry.name: entry for entry in ENTRIES}


class UnknownRemedyError(ValueError):
    """No remedy has this name, or the number after `=` is none."""


def parse(name: str) -> "tuple[Entry, int | None]":
    """`threads=2` as its entry and its number. Raises UnknownRemedyError."""
    base, equals, text = name.partition("=")
    entry = BY_NAME.get(base)
    if entry is None:
        raise UnknownRemedyError(name)
    if not equals:
        return entry, entry.argument
    if entry.argument is None or not text.isdecimal():
        raise UnknownRemedyError(name)
    return entry, int(text)


def entries(name: str) -> "tuple[Entry, ...]":
    """Of remedies in place together, or of one. Raises UnknownRemedyError."""
    return tuple(parse(one)[0] for one in name.split(COMBINED))


def described(name: str) -> str:
    """What `name` does, with its number."""
    entry, value = parse(name)
    return entry.text.replace("{value}", str(value))


def kept(name: str) -> str:
    """The lines that make `name` permanent; "" where there are none."""
    entry, value = parse(name)
    hint = f"  # Debian and Ubuntu: {entry.install}" if entry.install else ""
    return entry.keep.replace("{value}", str(value)) + hint
