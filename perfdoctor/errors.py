"""The one error that perfdoctor raises on purpose. The CLI catches it once and turns it into advice."""

from __future__ import annotations

from .exits import Exit


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
