"""Samples that a process keeps for others, and that are asked of it one by one."""

from __future__ import annotations

from perfdoctor.api.findings import Finding, Fix, Measurement, share
from perfdoctor.api.quantities import Fetch

from .waiting import Case, fetch_measurements

_ASK_MS = 0.06
"""Least of one question: 0.08 to 0.1 for 4 to 500 bytes on a machine with two CPUs, 0.3 for 800 kB."""
_TELLING = 0.25
"""Of the making of a batch, what questions take at least."""
_SAVED = 0.95
"""Of the lines that ask: a list or an array of the process's own answers at once."""


def asked_of_a_process(case: Case, fetch: Fetch) -> Finding | None:
    """Where lines of the data set ask proxies of `multiprocessing.Manager`, and that takes much of the making."""
    lines = [line for line in fetch.lines if line.asked_per_step > 0]
    asked = sum(line.asked_per_step for line in lines) / case.batches_counted
    spent = min(1.0, sum(line.share for line in lines))
    least = min(spent, fetch.share_of(_ASK_MS * asked))
    if least < _TELLING:
        return None
    return case.finding(
        "asked-of-a-process",
        "{asked:question} per batch to a `Manager`'s process",
        "the data set keeps something with `multiprocessing.Manager`: each look at it is a message to another process, "
        "which packs the answer and sends it back; the lines that ask take {asking_share} of making a batch",
        Fix(
            text="Keep the samples in the data set itself, as one array or tensor: a process that is forked shares its "
            "memory, and `share_memory_()` shares a tensor with any other.",
            code="self.rows = np.stack(rows)  # not Manager().list(rows)\n"
            "self.cache = torch.zeros(len(rows), width).share_memory_()  # written by one worker, read by all",
            risk="What one worker writes into a plain list or dict, the others do not see.",
        ),
        "the share of the lines that ask; at least 60 us for each question",
        low=least * case.wait,
        high=_SAVED * spent * case.wait,
        extra=(
            *fetch_measurements(fetch),
            Measurement("asked", asked, "count", "questions per batch"),
            share("asking_share", spent, "of the making, on lines that ask"),
            Measurement("asking", str(lines[0].site), "text", "the dearest of them"),
        ),
        at=lines[0].site,
    )
