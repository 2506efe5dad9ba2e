"""Why the loop waits: the one cause to blame, and beside a lack of CPUs what would be wrong without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfdoctor.api.causes import Bursts, bursts, input_wait, loader_waits, overlap, with_cpus
from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, location, milliseconds, present
from perfdoctor.api.quantities import MAKING, WITHOUT_CPU, Cause, Fetch, Missing

from .asked import asked_of_a_process
from .crowding import crowded_training
from .discarded import discarded_samples
from .handover import handover
from .made_again import samples_made_again
from .making import costly_part
from .no_cpu_left import no_cpu_left
from .same_result import same_results, sure_share
from .sampling import slow_sampler
from .waiting import Case, fetch_measurements
from .workers import WORTH, more_workers, rebuilt_iterator, too_few_workers, uneven_batches, worker_collections

_WHOLE_SAMPLES = ("PD03.samples-made-again", "PD03.part-made-again", "PD03.lost-by-workers")
"""What spares the making of samples, and not of a function's result in them."""


def waiting(case: Case) -> tuple[Finding, ...]:
    """What the wait for a loader comes from; nothing where no setting shortens it."""
    fetch = case.loader.fetch
    if isinstance(fetch, Missing):
        return _causes(case)
    discarded = discarded_samples(case, fetch)
    if discarded is not None:
        return _with_discarded(case, fetch, discarded)
    return _for_want_of_cpus(case, fetch) if case.split.blamed in WITHOUT_CPU else _causes(case)


def crowding_workers(case: Case) -> tuple[Finding, ...]:
    """What workers take from training whose batches are there in time."""
    fetch = case.loader.fetch
    if isinstance(fetch, Missing):
        return ()
    discarded = discarded_samples(case, fetch)
    if discarded is not None:
        return _with_discarded(case, fetch, discarded)
    crowded = crowded_training(case)
    return () if crowded is None else _beside(_needless(case, fetch), crowded)


def _with_discarded(case: Case, fetch: Fetch, discarded: Finding) -> tuple[Finding, ...]:
    """Samples that are thrown away, and what is done twice for the others: whoever else has the blame has it for
    making several times as many."""
    return discarded, *(_for_what_is_left(one) for one in _needless(case, fetch))


def _causes(case: Case) -> tuple[Finding, ...]:
    """What is made that need not be, and who is to blame for the rest."""
    fetch = case.loader.fetch
    needless = () if isinstance(fetch, Missing) or case.split.blamed not in MAKING else _needless(case, fetch)
    return _beside(needless, _cause(case))


def _needless(case: Case, fetch: Fetch) -> tuple[Finding, ...]:
    """Work on batches whose result was there before: functions, and with what they leave whole samples."""
    again = samples_made_again(case, fetch, 0.0)
    same = same_results(case, fetch, but_samples=again is not None)
    told = {finding.location for finding in same}
    beside = sum(sure_share(case, fetch, one) for one in fetch.same if location(one.at) in told)
    return present(*same, samples_made_again(case, fetch, beside))


def _beside(needless: tuple[Finding, ...], cause: Finding | None) -> tuple[Finding, ...]:
    """A cause beside work that need not be done at all is billed for what that leaves; a transform, or storage that is
    read again, is no cause then. Workers that save as much as samples that are kept come before those: they ask for no
    memory."""
    if cause is None or not needless:
        return present(*needless, cause)
    again = next((finding for finding in needless if finding.id in _WHOLE_SAMPLES), None)
    if cause.id == "PD03.transform" or (again is not None and cause.id == "PD03.storage"):
        return needless
    if again is not None and cause.id == "PD03.too-few-workers" and cause.savings.low_ms >= again.savings.low_ms:
        return (*(finding for finding in needless if finding is not again), cause, _for_what_is_left(again))
    return (*needless, _for_what_is_left(cause))


def _for_what_is_left(finding: Finding) -> Finding:
    return replace(finding, savings=replace(finding.savings, general=True))


def together(every: Sequence[Case]) -> Finding | None:
    """The wait for many loaders that is worth a finding, where that for none of them is."""
    first, split = every[0], input_wait(every[0].evidence)
    if len(every) < 2 or isinstance(split, Missing):
        return None
    whole = replace(first, split=split, name="")
    if not whole.is_worth_it:
        return None
    return unexplained(
        whole,
        "{loaders:loader} share it, and {longest}, which is waited for longest, has {most_ms} of it",
        Measurement("loaders", len(every), "count", "loaders of a step"),
        Measurement("longest", first.name, "text", "waited for longest"),
        milliseconds("most_ms", first.wait, "wait for that"),
    )


def _cause(case: Case) -> Finding | None:
    """The one cause that is to blame, when batches had a CPU."""
    fetch, blamed = case.loader.fetch, case.split.blamed
    if blamed is Cause.START:
        return rebuilt_iterator(case)
    if isinstance(fetch, Missing):
        return unexplained(case, "why is not known: {why}", Measurement("why", str(fetch), "text", "not known because"))
    asked = asked_of_a_process(case, fetch) if blamed in MAKING else None
    if asked is not None:
        return asked
    model = overlap(case.evidence, case.loader, case.step, fetch)
    uneven = bursts(case.loader, fetch, model)
    if uneven is not None and _explains(uneven, case.split.blamed_ms) and blamed is not Cause.GC:
        return uneven_batches(case, uneven)
    if blamed is Cause.UNEXPLAINED:
        return slow_sampler(case, fetch) or unexplained(
            case,
            "the data set and `collate_fn` take {make_ms} per batch; the rest goes into the sampler, into pinning "
            "memory, or into a few slow batches",
            *fetch_measurements(fetch),
        )
    if blamed is Cause.HANDOVER:
        # Workers may take more from training than it takes to receive what they make.
        found = present(handover(case, fetch, model), crowded_training(case))
        return max(found, key=lambda finding: finding.savings.high_ms, default=None)
    if blamed is Cause.GC:
        return worker_collections(case, fetch)
    more = more_workers(case, model)
    return costly_part(case, fetch, model) if more is None else too_few_workers(case, fetch, model, more)


def _explains(uneven: Bursts, blamed_ms: float) -> bool:
    """Whether the wait comes from slow batches in between, and working further ahead would take half of it away."""
    return uneven.now_ms >= WORTH * blamed_ms and uneven.ahead_ms <= (1 - WORTH) * uneven.now_ms


def _for_want_of_cpus(case: Case, fetch: Fetch) -> tuple[Finding, ...]:
    """The lack of CPUs, and beside it what is wrong with the loading itself: that would stay on a quiet machine."""
    quiet = with_cpus(case.evidence, case.number)
    step, loaders, waits = quiet.step, quiet.loaders, loader_waits(quiet)
    if isinstance(step, Missing) or isinstance(loaders, Missing) or isinstance(waits, Missing):
        return (no_cpu_left(case, fetch, 0.0),)
    loader, split = loaders[case.number], waits[case.number]
    alone = replace(case, evidence=quiet, loader=loader, step=step, split=split, with_cpus=True)
    remains = split.blamed in (*MAKING, Cause.GC) and split.blamed_ms >= case.limits.min_share * step.step_ms
    own = _causes(alone) if remains else ()
    if not own:
        return (no_cpu_left(case, fetch, 0.0),)
    return no_cpu_left(case, fetch, min(case.wait, split.blamed_ms)), *(_of_whole_step(case, one) for one in own)


def _of_whole_step(case: Case, own: Finding) -> Finding:
    """What was found as if every batch had a CPU."""
    saved = replace(own.savings, share=own.savings.ceiling_ms / case.step.step_ms)
    return replace(own, confidence=Confidence.MEDIUM, savings=saved)


def unexplained(case: Case, reasoning: str, *extra: Measurement) -> Finding:
    """The whole wait is the bound."""
    return case.finding(
        "input-wait",
        "",
        reasoning,
        Fix(
            text="Time the data set's `__getitem__`, `collate_fn` and the sampler where they run.",
            remedies=("etl.replay",),
        ),
        "upper bound only: the whole wait",
        low=0.0,
        high=case.wait,
        extra=extra,
        confidence=Confidence.LOW,
    )
