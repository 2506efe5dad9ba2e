"""One line for the user, out of the way of reports."""

from __future__ import annotations

import sys

from ..report.wording import clean


def say(text: str) -> None:
    """On stderr, at once."""
    print(f"perfdoctor: {clean(text)}", file=sys.stderr, flush=True)
