"""The whole job in words: as far as it was observed, or extrapolated where perfdoctor ended it and its loop says how
long it is."""

from __future__ import annotations

from ..evidence.model import JobAnatomy, Missing, WholeJob
from . import wording
from .anatomy import JOB_LOOKS, SMALLEST_OF_JOB, SliceText, dissect

_MINUTE_MS = 60_000
_SAID_BY = {"loops": "its `for` loops say", "lightning": "Lightning says", "transformers": "the Trainer says"}
_NAMES = {"epoch_starts": "epoch start", "evaluation": "evaluation", "checkpoints": "checkpoint"}


def job_anatomy_text(job: JobAnatomy) -> tuple[SliceText, ...]:
    """The parts of the job in words: of all of it where that is known."""
    told = job if isinstance(job.whole, Missing) else job.whole
    return tuple(
        SliceText(
            piece,
            # A column in minutes and hours has no common decimals.
            _predicted(piece.ms) if told.wall_ms >= _MINUTE_MS else wording.aligned(piece.ms, told.wall_ms),
            wording.share(piece.share),
        )
        for piece in dissect(told.parts, JOB_LOOKS, SMALLEST_OF_JOB)
    )


def job_heading(job: JobAnatomy) -> str:
    """`about 4 h 10 min, extrapolated from 60 of 12,000 steps`, or `34.2 s, from its start to its end`."""
    if not isinstance(job.whole, Missing):
        return f"{whole_time(job.whole)}, extrapolated from {job.steps:,} of {job.whole.steps:,} steps"
    if job.stopped:
        end = "until perfdoctor ended it"
    else:
        end = "from its start to its end" if job.complete else "as far as it was seen"
    return f"{wording.duration(job.wall_ms)}, {end}"


def whole_time(whole: WholeJob) -> str:
    """`about 4 h 10 min`."""
    return f"{'at most' if whole.at_most else 'about'} {_predicted(whole.wall_ms)}"


def whole_job_sentence(job: JobAnatomy) -> str:
    """How much was observed, who says how long the job is, and what is not in it; and what of it is judged."""
    return " ".join(filter(None, (_other_phases(job), _of_the_whole(job))))


def _other_phases(job: JobAnatomy) -> str:
    if job.parts.other_phases <= 0:
        return ""
    others = wording.duration(job.parts.other_phases)
    return f"Of the job's phases of training the longest is judged; {others} went into others."


def _of_the_whole(job: JobAnatomy) -> str:
    whole = job.whole
    if isinstance(whole, Missing):
        if whole.code == "trains-on":
            return (
                f"Perfdoctor ended the job early: {whole.reason}, which was not seen. --to-end watches the whole job."
            )
        return f"The whole job's time is not extrapolated: {whole.reason}." if whole.code == "drifts" else ""
    seen = wording.duration(job.wall_ms)
    text = f"Perfdoctor ended the job after {seen}; {_SAID_BY[whole.by]} how many steps it takes"
    if whole.unseen:
        text += (
            f". No {' and no '.join(_NAMES[part] for part in whole.unseen)} was seen: any that there are come on top"
        )
    if whole.once:
        names = wording.listing(f"one {_NAMES[part]}" for part in whole.once)
        verbs = "was seen, and counts" if len(whole.once) == 1 else "were seen, and count"
        text += f". Only {names} {verbs} once"
    if whole.at_most:
        text += ". It stops earlier where nothing gets better"
    return f"{text}."


def _predicted(ms: float) -> str:
    return wording.duration(ms, wording.PREDICTED_DIGITS)
