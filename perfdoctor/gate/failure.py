"""What a gate raises when an arm does not run."""

from __future__ import annotations

from pathlib import Path

from ..errors import PerfdoctorError
from ..exits import Exit
from ..storage.copies import origin

STEP = "a step ends at optimizer.step(), a batch or a forward"


class JobFailedError(PerfdoctorError):
    """The job ended by itself, badly or too early, or never made a step."""

    def __init__(
        self,
        message: str,
        *,
        slug: str,
        advice: str,
        exit_code: Exit = Exit.NOT_MEASURABLE,
        output: Path | None = None,
    ) -> None:
        super().__init__(message, slug=slug, advice=advice, exit_code=exit_code)
        self.output = output
        """File with what the job printed; None when none helps."""


def job_failed(who: str, how: str, output: Path, exit_code: Exit = Exit.JOB_FAILED) -> JobFailedError:
    """`now: the job failed with exit code 1`."""
    message = f"{who}: the job failed with {how}"
    return JobFailedError(
        message, slug="job-failed", advice=f"see {origin(output)}", exit_code=exit_code, output=output
    )
