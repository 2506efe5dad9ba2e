"""OpenBLAS's threads, of NumPy or SciPy, that spin beside torch's team."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Severity,
    location,
    savings,
)
from perfdoctor.api.quantities import CodeLine, Missing

from .._shared.in_python import lines_in_python
from .._shared.lines import PYTHON_PARTS, key
from .._shared.spinning import COLLAPSE, waited_ms
from .case import Case

_LEAST_CORES = 0.2
"""Of a CPU: who uses less keeps nobody waiting for long."""
_WAITED = (0.7, 1.0)
"""Of the time without a CPU, part of which the team's own threads may take from each other."""
_LOGGING = "logging"
"""The part of a step in which a tracker is called."""
_SPUN = 2.0
"""Times the loop's own time outside the passes, for each thread of the pool: they cannot have computed for as long."""


def second_pool(case: Case) -> Finding | None:
    """Where such threads and the team want more CPUs than there are."""
    ops, step = case.evidence.ops, case.step
    pools = () if isinstance(ops, Missing) else ops.pools
    cores = sum(pool.cores for pool in pools)
    crowded = case.threads.intra_op > 1 and case.demand + cores > case.usable
    if cores < _LEAST_CORES or not crowded or case.delay is None or case.delay <= case.limits.run_delay:
        return None
    cost = Cost(step, waited_ms(step, case.lack, team=True))
    if cost.share < case.limits.min_share:
        return None
    largest = max(pools, key=lambda pool: pool.cores)
    threads = max(1, largest.threads - 1)
    outside_ms = step.parts.input_wait + step.parts.other
    spun = cores * step.step_ms > _SPUN * threads * outside_ms
    caller = _caller(case)
    is_logged = caller is not None and caller.part == _LOGGING
    return Finding(
        id="PD13.second-pool",
        severity=cost.severity(case.limits.min_share, case.limits.error_share) if spun else Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="NumPy's or SciPy's threads keep {cores:CPU} from training, which lacks one for {cost_ms} per step",
        reasoning="{library} has {pool:thread} of its own, which spin for a tenth of a second after each call, beside "
        "torch's {threads:thread}; the job waits for a CPU for {delay} of its runnable time",
        evidence=(
            *cost.measured("without a CPU"),
            Measurement("cores", round(cores, 1), "count", "CPUs that those threads used"),
            Measurement("library", largest.library, "text", "the library"),
            Measurement("pool", largest.threads, "count", "threads of its pool"),
            *case.shared(),
        ),
        location=location(None if caller is None else caller.site),
        fix=Fix(
            text="Log every 50th step or so, or give that library one thread."
            if is_logged
            else "Give that library one thread.",
            code="OPENBLAS_NUM_THREADS=1 python train.py\n"
            '# or, in the program: threadpoolctl.threadpool_limits(1, user_api="blas")',
            language="bash",
            risk="Large matrices of NumPy's take longer; sums are taken in another order.",
            remedies=("blas.one-thread",),
        ),
        savings=savings(
            step,
            _WAITED[0] * cost.ms,
            max(_WAITED[1] * cost.ms, COLLAPSE * step.working_ms),
            "the time without a CPU; threads that spin until another has a CPU may lose most of the step",
        ),
    )


def _caller(case: Case) -> CodeLine | None:
    """The dearest line in which libraries other than torch compute; one that issues operators only where all do, since
    it is beside this pool that those take long."""
    lines = lines_in_python(case.evidence, (*PYTHON_PARTS, "input_wait", _LOGGING))
    hot = () if isinstance(case.evidence.hot_lines, Missing) else case.evidence.hot_lines
    issuing = {key(line.site) for line in hot}
    called = [line for line in lines if line.called or line.part in (*PYTHON_PARTS, _LOGGING)]
    # What a tracker makes of numbers it makes without torch, whatever its line issues before.
    alone = [line for line in called if key(line.site) not in issuing or line.part == _LOGGING]
    return max(alone or called, key=lambda line: line.ms_per_step) if called else None
