"""What a gate raises when an arm does not run."""

from __future__ import annotations

from ..errors import PerfdoctorError
from ..exits import Exit


class JobFailedError(PerfdoctorError):
    """The job ended by itself, badly or too early, or never made a step."""

    def __init__(self, message: str, *, slug: str, advice: str, exit_code: Exit, output: str = "") -> None:
        super().__init__(message, slug=slug, advice=advice, exit_code=exit_code)
        self.output = output
        """File with what the job printed; "" when none helps."""
