"""Other processes: do they compete with this job for CPU, memory or the GPU.

What it looks at
----------------
From outside, twice a second over the steady steps: how long the job's threads were runnable without a CPU, the CPU
time of other processes, idle and stolen time, throttling by the control group, memory pressure
and swapping. The processes that took the CPU are named: pid, command, user; so are those of the job itself that never
sleep, though they neither train nor make batches, told at the loop of the function that they run, or else at the line
that starts them. From inside: each call of the loop that starts a process, ends a pool or runs another program, with
its line and time, and each message through a pipe to processes of its own; a loader's workers are for PD03.

Why it costs time
-----------------
A thread that finds no CPU does nothing, and OpenMP makes its team wait for it. On a shared machine a neighbour that
keeps one of two cores busy takes half of a job's second core, and with spinning threads many times that. A
container's CPU quota stops all threads at once for the rest of each period. The cost is not visible inside the
job: everything just takes longer. Processes that the loop itself starts in each step cost twice: forking copies the
page tables of a large process, and the pages that are touched afterwards. A helper that polls without a pause keeps a
CPU from training as a neighbour does. A message to another process and its answer take a tenth of a millisecond and
more, however little it computes: eight environments of 20 us each, a process for each, made a step of 4.9 ms one of
10.2 ms.

Example
-------
    with Pool(2) as pool:  # in each step: forked, and ended, for one batch
        rows = pool.map(prepare, batch)

    python train.py &      # on 8 cores, beside somebody's `stress -c 8`: each step takes about twice as long

How to fix
----------
End or move the neighbour, give the job CPUs of its own (`taskset`, a cpuset, exclusive scheduling), raise the
container's quota, or use no more threads than the CPUs that are left. Keep one pool for all steps; ask other programs
rarely; let helpers block until there is something to do; compute what takes microseconds in the training process.

When it stays silent
--------------------
When the job got the CPUs it asked for, however busy the rest of the machine is: below 10 % of its runnable time spent
waiting, and below 5 % of the step for the training thread. The job's own ranks, workers and threads are not other
processes: what they take from each other is for PD03 and PD13 to say. Nor are helpers that use less than a fifth of a
core.

Limits
------
Inside a container other containers are invisible: then time is missing but no owner can be named, and the report says
so. Memory bandwidth and shared caches are not measured. GPU sharing is told from utilisation beyond the job's own
kernels. Stolen time is an estimate: the hypervisor does not say from whom it took it. Slow storage is PD03's.

References
----------
- Deeplearning4j, "How to debug performance issues", step 12
- Linux, Documentation/scheduler/sched-stats: run delay
- Linux, Documentation/accounting/psi
- kubernetes-mixin, CPUThrottlingHigh: 25 % of periods
"""

from __future__ import annotations

from perfdoctor.api.causes import Signs, compute, lack_of_cpu
from perfdoctor.api.findings import Check, Outcome, cannot_tell, clear, found, present
from perfdoctor.api.quantities import Evidence, Missing

from .case import Case, Limits
from .cpu import contention, steal, throttled
from .gpu import shared_gpu, throttled_gpu
from .helpers import busy_helper
from .memory import memory_pressure
from .started import asked, exchanged, forked


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """Time without a CPU first; only then who took it."""
    step, host = evidence.step, evidence.host
    signs = Signs(limits.others_cpus, limits.idle_cpus, limits.throttled_share)
    lack, split = lack_of_cpu(evidence, signs), compute(evidence, signs)
    if isinstance(step, Missing) or isinstance(lack, Missing) or isinstance(split, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if isinstance(host, Missing):
        return cannot_tell(f"the machine was not sampled: {host}")
    case = Case(evidence, step, host, lack, split, limits)
    findings = present(
        throttled(case) or contention(case),
        steal(case),
        memory_pressure(case),
        shared_gpu(case),
        throttled_gpu(case),
        busy_helper(case),
        forked(case),
        asked(case),
        exchanged(case),
    )
    if findings:
        return found(*findings, measurements=case.shared())
    if isinstance(step.run_delay_ms, Missing):
        return cannot_tell(f"the time without a CPU was not measured: {step.run_delay_ms}")
    own = case.job_delay > limits.delay_share and host.others_cpus < limits.others_cpus
    return clear(
        "the training thread waited {thread_delay} per step for a CPU; other processes used {others:core}, "
        "{idle:was|were} idle" + (": the job's own threads compete for CPU with each other" if own else ""),
        *case.shared(),
    )


CHECK = Check(code="PD12", name="other-processes", title="other processes", limits=Limits(), examine=examine)
