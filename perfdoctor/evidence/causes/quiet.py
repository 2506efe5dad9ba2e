"""The same run with a CPU for every batch that is made: what would remain of the wait for data on a quiet machine.

A batch of L ms of which D are run delay would take L - D. In the training process the wait is shorter by D for each
batch; beside it, w workers leave a wait of no more than (L - D) / w - S, where S is the rest of the step, and it is
shorter by D / w at least as far as there was a wait at all.
"""

from __future__ import annotations

from dataclasses import replace

from ..model import Evidence, Fetch, Loader, Missing, Step


def with_cpus(evidence: Evidence) -> Evidence:
    """`evidence` with no run delay in the making of batches by the loader that is waited for longest, and so much
    less wait. As it is where nothing is known of that."""
    step, loaders = evidence.step, evidence.loaders
    if isinstance(step, Missing) or isinstance(loaders, Missing) or not loaders:
        return evidence
    first, *others = loaders
    if isinstance(first.fetch, Missing):
        return evidence
    made = _undelayed(first.fetch)
    wait = _wait(first, first.fetch, made, step)
    gone = step.parts.input_wait - wait
    batches = max(first.steady_batches_per_step, 1e-9)
    loader = replace(first, fetch=made, wait_ms=max(0.0, first.wait_ms - gone / batches))
    quiet = replace(step, step_ms=step.step_ms - gone, parts=replace(step.parts, input_wait=wait))
    return replace(evidence, step=quiet, loaders=(loader, *others))


def _undelayed(fetch: Fetch) -> Fetch:
    """Run delay goes off the two halves by the time that each spent off the CPU."""
    data_set = max(0.0, fetch.getitem_ms - fetch.getitem_cpu_ms)
    collate = max(0.0, fetch.collate_ms - fetch.collate_cpu_ms)
    off = data_set + collate
    delay = min(fetch.run_delay_ms, off)
    # Collections are timed by the clock alone, and have what delay is left.
    collected = max(0.0, fetch.gc_ms - (fetch.run_delay_ms - delay))
    share = delay / off if off > 0 else 0.0
    return replace(
        fetch,
        getitem_ms=fetch.getitem_ms - share * data_set,
        collate_ms=fetch.collate_ms - share * collate,
        run_delay_ms=0.0,
        gc_ms=collected,
        # Which batches were delayed is not known.
        each_ms=(),
    )


def _wait(loader: Loader, fetch: Fetch, made: Fetch, step: Step) -> float:
    batches, wait = loader.steady_batches_per_step, step.parts.input_wait
    less = (fetch.total_ms - made.total_ms) * batches
    if not loader.num_workers:
        return max(0.0, wait - less)
    beside = made.total_ms * batches / loader.num_workers - (step.step_ms - wait)
    return max(0.0, min(wait - less / loader.num_workers, beside))
