"""Communication: what the ranks of a job wait for each other, which of them is late and why, and what sending costs.

What it looks at
----------------
On every rank and in every step, the time that is not its own: behind its last gradient until
DistributedDataParallel's reduction is through, in the broadcast of buffers before a forward pass, in the all-gathers
and reduce-scatters of `fully_shard`, in what tensor parallel layers and the stages of a pipeline wait for, and in
collectives called from Python (`all_reduce`, `barrier`, `all_gather_object`, ...), line by line. Two samples of each
rank's data set, after the last step: whether the ranks' loaders all go through the same ones. What remains of the
step is the rank's own time. Nothing compares the clocks of two ranks. Ranks that do the same work on other data are
compared; stages of a pipeline and parts of a layer are not.

Of traces: communication that no other kernel hides; with those of all ranks what of it is sending, by the rank that
is in each collective for the shortest time, and what is waiting for others.

Why it costs time
-----------------
A collective ends when the last rank has come, so the step of all is that of the slowest; and because all ranks end it
together, every rank's backward pass looks slow. The rank with the longest own time is the one that is late. Up to
half of the ranks may be late together: all of one node, say. What the rank that waits least still waits is sending
itself, the same on all. Two ranks of 8 ms steps took 30 ms each once one had 25 ms more to do in its backward pass:
27 ms of own backward pass against 2 ms. Ranks that straggle by turns cost as much, and no rank's mean shows it.

`fully_shard` gathers the parameters of each module that it was called on by a collective of its own, before the
forward pass and again before the backward pass, and reduces their gradients by another: 16 layers of 64 x 64 took 53
ms per step in 48 collectives on two ranks, as one group 5 ms in two.

Example
-------
    for i, batch in enumerate(loader):            # 4 batches per optimizer step
        (loss_of(model(batch)) / 4).backward()    # each reduces all gradients, 3 of the 4 for nothing
        if i % 4 == 3:
            optimizer.step()

How to fix
----------
A late rank: what it spends its time in is said by part, with its longest line there or the line that makes its loader,
and by the findings of its own steps; so are a CPU quota that stops this rank alone, a CPU whose clock is lower than
those of the others, and a machine on which all computing takes longer. Ranks that straggle by turns: do in the same
step what every rank has to do now and then. Sending: reduce once per optimizer step (`no_sync`), in few large buckets,
take collectives for logging and barriers out of the step, send no buffers that need not be sent; call `fully_shard` on
whole blocks.

When it stays silent
--------------------
With one rank, and where ranks do not wait for each other. A rank that is late now and then, each time another one, is
no late rank: by how much one is late counts steps in which it is early against it, and what comes and goes over
seconds counts by eighths of the run. Stragglers are told only where one takes twice as long as usual and the others
do not, and do not alarm where the ranks wait longer for a CPU than for them. Where the others wait longer for a CPU
than for the late rank, and all that it does takes longer, it may be another rank next time: that is told and does not
alarm. Steps that start an epoch or save a checkpoint on any rank are left out on all. A setting
(`find_unused_parameters`, small buckets) is no finding; its time is.

Limits
------
On CUDA the ranks wait on the device, which host times do not show: the check then says that it cannot tell. Lateness
of ranks whose recordings are not there counts as sending. Which ranks do the same work is known of
DistributedDataParallel, `fully_shard`, `parallelize_module` and `PipelineStage`; in other divisions of a model all
ranks are compared. How unequal the stages of a pipeline are is not told. Inside `torch.compile` nothing is recorded.
Sending that is hidden behind the backward pass costs nothing here, though it may slow that pass down.

References
----------
- PyTorch, DistributedDataParallel: `no_sync`, `bucket_cap_mb`, `find_unused_parameters`, buffers
- Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020
- traceopt-ai/traceml#252: wall times cannot name the rank that is late
"""

from __future__ import annotations

from perfdoctor.api.findings import (
    Check,
    Measurement,
    Outcome,
    cannot_tell,
    clear,
    found,
    milliseconds,
    not_applicable,
    present,
    share,
)
from perfdoctor.api.quantities import Evidence, Missing

from .._shared.traced import traced
from .calls import collectives_in_the_loop
from .case import Case, Limits
from .late import by_turns, late_rank
from .on_device import in_trace
from .reasons import late_reason
from .same_data import same_data
from .sending import accumulation_without_no_sync, buffers_broadcast, exposed, find_unused, small_buckets
from .sharded import small_shards

_DIFFERENT = "the ranks hold different parts of the model (stages of a pipeline, parts of layers), so none can be late"


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """Who is late; then what sending takes, the avoidable first."""
    step, together = evidence.step, evidence.communication
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    seen = traced(step, evidence.activity)
    if seen is not None:
        return in_trace(seen)
    if evidence.job.world_size < 2:
        return not_applicable("the job has one rank")
    if isinstance(together, Missing):
        return cannot_tell(f"the ranks were not compared: {together}")
    case = Case(evidence, step, together, limits)
    findings = present(
        late_rank(case),
        by_turns(case),
        accumulation_without_no_sync(case),
        small_buckets(case),
        small_shards(case),
        buffers_broadcast(case),
        find_unused(case),
        *collectives_in_the_loop(case),
        same_data(case),
    )
    findings += present(exposed(case, findings))
    shared = (
        Measurement("ranks", len(together.ranks), "count", "ranks compared"),
        Measurement("late_rank", together.late, "count", "the rank that the others wait for most"),
        Measurement("late_reason", late_reason(together), "text", "where that rank takes longest compared with others"),
        milliseconds("late_ms", together.late_ms, "by which it is later than the next, per step"),
        milliseconds("exposed_ms", together.exposed_ms, "in collectives without waiting for a late rank, per step"),
        share("exposed_share", together.exposed_ms / step.step_ms if step.step_ms else 0.0, "of the step"),
    )
    if findings:
        return found(*findings, measurements=shared)
    if not together.is_compared:
        return clear(_DIFFERENT + ", and the one that waits least does so for {exposed_ms} ({exposed_share})", *shared)
    return clear(
        "no rank is late by more than {late_ms} per step, and collectives take {exposed_ms} ({exposed_share})", *shared
    )


CHECK = Check(code="PD19", name="communication", title="communication between ranks", limits=Limits(), examine=examine)
