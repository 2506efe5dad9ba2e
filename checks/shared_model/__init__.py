"""One model, several threads: forward passes that wait for each other instead of running side by side.

What it looks at
----------------
Outermost forward passes on all threads of the process: how many are under way at once, their time by the clock against
the CPU time and run delay of their thread, what waits for a lock around the model, intra-op threads times forward
passes under way against the usable CPUs, gradients and training mode in those threads. The operators of one forward
pass are timed in the job for one request and for a batch. Where threads run beside a training loop, a hundred looks at
all of them say which wait for a lock of the job's own, where it is held meanwhile, and whether the loop waits; and
which take a CPU for asking again and again whether there is something to do, by the lines that they stand at; and
which sleep, or wait until their time is over, while nobody computes. Where a
pool has threads as training ends, forward and backward are made again with what they hand to it done by the training
thread.

Why it costs time
-----------------
Threads share one interpreter lock (the GIL). torch releases it inside every operator and must get it again after; with
small operators the threads do little else. Four threads that called one network of 16 layers made 3,800 forward passes
per second here, one thread alone 8,700, and four threads that leave the model to a fifth, which batches, 9,500. Each
thread also has an OpenMP team of its own: eight threads with eight intra-op threads are 64 on the CPUs.

Example
-------
    with ThreadPoolExecutor(8) as pool:
        pool.map(model, requests)      # batch 1 each, all after the same interpreter lock

How to fix
----------
Let one thread own the model and serve what has queued up as one batch, or give each process a model. Divide the CPUs
among the threads that compute. Enter `inference_mode` inside each thread: it holds for one thread only. A thread that
has nothing to do waits: `queue.get()`, `event.wait()`, not `get_nowait()` in a loop. One that collects requests for a
batch waits for no more than can come: eight threads that ask never fill a batch of 16, and each round takes the whole
wait.

When it stays silent
--------------------
When one thread calls the model; when forward passes seldom overlap; when they overlap and their kernels, which run
without the interpreter lock, take most of the time: then threads help. A pool that only loads data calls no model.

Limits
------
Batches are timed on the CPU, for operators that can be called with tensors of our own: recurrent layers and custom
ones count as not helped by a batch. In a training loop with threads beside it only the time that the loop itself is
blocked can be saved. The threads of nn.DataParallel are PD01's to judge. Nothing is known of models inside compiled
functions. A lock is told by where its waiters stand: in the function that calls the model. One
beside a training loop must be one of `threading`'s, taken by `with` or `acquire()` under a name, and held by a thread.

References
----------
- Deeplearning4j, "How to debug performance issues", step 6
- PyTorch documentation, "CPU threading and TorchScript inference"
- pytorch/pytorch#15432, #26948, triton-inference-server/server#6896: threads that make inference slower
"""

from __future__ import annotations

from perfdoctor.api.findings import Check, Measurement, Outcome, cannot_tell, clear, found, not_applicable, present
from perfdoctor.api.quantities import Concurrency, Evidence, Missing

from .busy_waiting import busy_waiting
from .case import MIN_MEASURED, Forwards, Limits
from .evaluation import grad_in_threads, train_mode_shared
from .handed_over import handed_over
from .held_lock import waits_for_lock
from .pausing import pausing
from .waits import lock_bound, oversubscribed_teams, serialised


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """One thread, several that seldom meet, or several that cost: teams, locks, graphs, training mode."""
    step, seen = evidence.step, evidence.concurrency
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if isinstance(seen, Missing):
        return cannot_tell(f"threads that call the model were not counted: {seen}")
    case = Forwards(evidence, step, seen)
    lock, pool, busy = waits_for_lock(case, limits), handed_over(case, limits), busy_waiting(case, limits)
    pause = pausing(case, limits) if lock is None else None
    if pool is not None:
        return found(*present(pool, busy), measurements=case.shared())
    if seen.threads < 2:
        beside = present(lock, busy, pause)
        return found(*beside) if beside else _alone(seen)
    if not isinstance(evidence.backend, Missing) and evidence.backend.data_parallel:
        return not_applicable("the threads are those of nn.DataParallel, which PD01 judges")
    # Forwards cannot wait for the lock and for their team in the same millisecond.
    waits = present(lock, lock_bound(case, limits), oversubscribed_teams(case, limits), serialised(case, limits))
    largest = max(waits, key=lambda finding: finding.savings.high_ms, default=None)
    findings = present(largest, busy, pause, grad_in_threads(case, limits), train_mode_shared(case, limits))
    if findings:
        return found(*findings, measurements=case.shared())
    if seen.overlapped_share < limits.overlapped:
        return clear(
            "{threads:thread calls|threads call} a model, and {overlapped} of the forward passes overlap",
            *case.shared(),
        )
    if seen.measured < MIN_MEASURED:
        return cannot_tell(
            "forward passes of several threads overlap, but too few could be measured; let the job run longer"
        )
    return clear(
        "{threads} threads call a model, {in_flight:forward pass is|forward passes are} under way at once, and they "
        "wait for a lock for {blocked} of their time",
        *case.shared(),
    )


def _alone(seen: Concurrency) -> Outcome:
    return clear(
        "one thread calls the model: none of its {forwards:forward pass} met another",
        Measurement("forwards", seen.forwards, "count", "forward passes in steady steps"),
    )


CHECK = Check(code="PD06", name="shared-model", title="one model, several threads", limits=Limits(), examine=examine)
