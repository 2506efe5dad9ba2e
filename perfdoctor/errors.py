"""The one error that perfdoctor raises on purpose. The CLI catches it once and turns it into advice."""

from __future__ import annotations

from collections.abc import Iterable

from .exits import Exit

_WORTH_SUGGESTING = 0.5
"""difflib's ratio below which two words have little in common; its own default of 0.6 misses `expiry`, `expires`."""


class PerfdoctorError(Exception):
    """Something the user can act on.

    `message` says what happened, `advice` what to do about it, `slug` is a stable name for scripts and
    search engines, `exit_code` what the shell gets.
    """

    def __init__(self, message: str, *, slug: str, advice: str, exit_code: Exit = Exit.USAGE) -> None:
        super().__init__(message)
        self.message = message
        self.slug = slug
        self.advice = advice
        self.exit_code = exit_code


def nearest(word: str, valid: Iterable[str]) -> str:
    """The most similar of `valid`, whatever the case and the hyphens; "" when none is similar."""
    import difflib  # only for those who mistyped

    said = word.lower().replace("_", "-")
    # Not get_close_matches(), which takes the last of equals: PD3 is nearer to PD03 than to PD13.
    likeness = {option: difflib.SequenceMatcher(None, said, option.lower()).ratio() for option in valid}
    best = max(likeness, key=lambda option: likeness[option], default="")
    return best if best and likeness[best] >= _WORTH_SUGGESTING else ""


def did_you_mean(word: str, valid: Iterable[str]) -> str:
    """`; did you mean `steps`?`, to stand behind a message; "" when nothing is similar."""
    best = nearest(word, valid)
    return f"; did you mean `{best}`?" if best else ""
