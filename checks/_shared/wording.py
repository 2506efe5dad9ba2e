"""Code of fixes, in the words of whoever runs the training loop."""

from __future__ import annotations

from perfdoctor.api.quantities import Job


def in_words_of(job: Job, plain: str, *, lightning: str = "", transformers: str = "", accelerate: str = "") -> str:
    """The code for the job's framework; `plain` for a loop of its own, and where the framework has no word for it."""
    own = {"lightning": lightning, "transformers": transformers, "accelerate": accelerate}
    return own.get(job.trainer) or plain
