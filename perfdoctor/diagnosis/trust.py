"""What the codes from PD90 on mean: how far a run can be trusted. Findings about jobs have pages of their own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Page:
    """One code of the part "How far to trust this run"."""

    title: str
    meaning: str
    advice: str
    """What the reader can do."""


PAGES: dict[str, Page] = {
    "PD90": Page(
        "too few steps",
        "Fewer than 20 steady steps were seen, or none that can be used: warm-up and profiled steps are left out. The "
        "interval of the step is then wider than most findings.",
        "Let the job run longer: --steps 200 or --seconds 60, and enough epochs.",
    ),
    "PD91": Page(
        "a suppression that does not do what it says",
        "An entry under [[suppress]] or a `# perfdoctor: ignore` comment is malformed, has expired, or matches nothing "
        "in this run. What has expired is reported again.",
        "Mend or remove the line that the report names.",
    ),
    "PD92": Page(
        "a contended machine",
        "Other processes kept CPUs busy, or the job waited for one. Steps are then longer and noisier than the job's "
        "own; PD12 says by how much and, where it can be seen, by whom.",
        "Run it again when the machine is quiet, or read shares rather than milliseconds.",
    ),
    "PD93": Page(
        "perfdoctor's own overhead",
        "The hooks took more than 1 % of the step. That happens with steps of a few milliseconds and less.",
        "Nothing needs to be done; parts of such short steps are a little too long in the report.",
    ),
    "PD94": Page(
        "a check crashed",
        "A check raised an exception. The other checks are not affected; the exit code is 5.",
        "Report it with the traceback on stderr and the output of `perfdoctor env`.",
    ),
    "PD95": Page(
        "an incomplete recording",
        "A file of the recording is missing, cut off or unreadable, as happens when a process is killed.",
        "Read the note: it says what is missing. What was recorded before counts.",
    ),
    "PD96": Page(
        "debugging is on",
        "A variable has switched on an aid for debugging that makes every step dearer: Python's development mode, a "
        "debugging allocator, tracemalloc, a wait after every CUDA kernel, checks of every collective.",
        "Unset the variable that the report names, unless it is needed.",
    ),
}
