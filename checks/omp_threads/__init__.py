"""OpenMP threads: as many as the CPUs can run.

What it looks at
----------------
Intra-op threads times ranks against the CPUs this job may use (affinity and cgroup quota), what the job's own largest
operators take with one thread, with the present number, and with as many as there are CPUs (timed in the training
process), run delay and throttling, workers and what binds them; the CPUs that the training thread may run on, against
those that the process had at its start, and the line that chose them; which of the process's threads are NumPy's or
SciPy's pool (told after the last step, by giving that pool something to do), and how much CPU those used.

Why it costs time
-----------------
OpenMP threads meet at a barrier after each operator, and libgomp's threads spin while waiting for each other: 300,000
turns when there are as many threads as CPUs. One busy neighbour is enough to make every barrier last a time slice: two
threads on two CPUs beside one neighbour took 31 to 66 times as long as one thread. A container's CPU quota does
the same, because no OpenMP runtime reads it. NumPy and SciPy bring OpenBLAS, with a pool of threads of its own, which
spin as well: 104 ms after each call, on two CPUs, where torch's team stops after 5. `np.linalg.eigh` of a 30 x 30
matrix wakes them, `svd` of 60 x 60, `solve` of 100 x 100. A step that calls them more often than that trains beside
threads that never rest: 160 ms in place of 78. The other way round, torchrun sets one thread per rank.

Example
-------
    docker run --cpus 2 ...      # on 48 cores: torch starts 48 threads for 2 CPUs' worth of time
    torchrun --nproc-per-node 2  # sets OMP_NUM_THREADS=1, 7 of 8 cores idle
    os.sched_setaffinity(0, {core})  # in __init__: meant for a helper's thread, done by the one that trains
    _, vectors = np.linalg.eigh(laplacian)  # in __getitem__: OpenBLAS's threads spin until the next sample

How to fix
----------
Set OMP_NUM_THREADS to usable CPUs divided by ranks; on a shared machine also OMP_WAIT_POLICY=PASSIVE. Keep binding
variables (OMP_PROC_BIND) from the data-loader workers. Give NumPy's pool one thread: OPENBLAS_NUM_THREADS=1, or
`threadpoolctl.threadpool_limits(1, user_api="blas")`. Pin a helper in its own thread: `os.sched_setaffinity(0, ...)` is
about the thread that calls it, and threads that this one starts inherit it.

When it stays silent
--------------------
When the present number is within 10 % of the best that was timed, whatever the settings say: 16 threads on two
idle CPUs were measured to cost only 4 %. More threads than the job or its caller chose are an opportunity, and only
where CPUs idle that they would take.

Limits
------
Operators are timed for some ten milliseconds in one place of the run; a neighbour that was idle just then is not
seen in the timings, only in the run delay. Nor are other ranks that wait at a collective just then: where ranks have
more threads than CPUs, the training thread's wait for a CPU counts as well. Whether the threads of OpenBLAS computed or
spun is not seen: where they used more CPU than the loop's own time outside the passes allows, they spun. Pools of other
libraries (OpenCV, MKL) are counted, not timed; nor are those of workers.

References
----------
- Deeplearning4j, "How to debug performance issues", step 13
- GCC, libgomp manual: GOMP_SPINCOUNT
- llvm/llvm-project#225493, OpenMathLib/OpenBLAS#6059: quotas are ignored
- torch/distributed/run.py: "Setting OMP_NUM_THREADS environment variable for each process to be 1"
"""

from __future__ import annotations

from perfdoctor.api.causes import Signs, lack_of_cpu, thread_gain
from perfdoctor.api.findings import Check, Measurement, Outcome, cannot_tell, clear, found, present
from perfdoctor.api.quantities import Evidence, Missing

from .case import Case, Limits
from .pinned_process import pinned_process
from .pinned_workers import pinned_workers
from .second_pool import second_pool
from .thread_count import crowded_ranks, thread_count


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """The thread count by its timing, quota throttling, then the workers."""
    step, threads = evidence.step, evidence.threads
    lack = lack_of_cpu(evidence, Signs(throttled=limits.throttled))
    if isinstance(step, Missing) or isinstance(lack, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if isinstance(threads, Missing):
        return cannot_tell(f"threads were not counted: {threads}")
    case = Case(evidence, step, threads, lack, thread_gain(evidence), limits)
    loaders = () if isinstance(evidence.loaders, Missing) else evidence.loaders
    findings = present(
        pinned_process(case) or thread_count(case) or crowded_ranks(case),
        second_pool(case),
        *(pinned_workers(case, loader) for loader in loaders),
    )
    if findings:
        return found(*findings, measurements=case.shared())
    if isinstance(case.gain, Missing):
        if threads.intra_op == 1 and case.demand <= case.usable:
            return clear("one thread per rank on {usable:usable CPU}: no thread waits for another", *case.shared())
        if case.demand <= case.usable and case.delay is not None and case.delay < limits.run_delay:
            return clear("{threads:thread} on {usable:usable CPU}, and none of them waited", *case.shared())
        return cannot_tell(
            "no operator could be timed with other numbers of threads, so what the present one costs is not known"
        )
    return clear(
        "with {threads:thread} on {usable:usable CPU} the largest operators take {timed} of the best time found",
        *case.shared(),
        Measurement("timed", case.gain.times, "ratio", "operator time over the best"),
    )


CHECK = Check(code="PD13", name="omp-threads", title="OpenMP threads", limits=Limits(), examine=examine)
