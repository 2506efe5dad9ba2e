"""Who gets the blame: the steady step divided among its causes, and the order in which they are asked.

Two signals often explain the same millisecond. Then the first of this order has it, and the next gets what is left;
what nobody explains stays `UNEXPLAINED`. Nothing is negative, and the parts sum up to the whole.

The wait for data (`input_wait`, and `loader_waits` loader by loader)

0. *Whose*: each loader of a step has what its own batches were waited for, and what its own making explains of that.
   Together they have no more than the step's wait. (Of two loaders without workers one took 66 ms for a batch and the
   other 19: the mean of both explained the wait for neither.)
1. *Hidden*: on a device, a wait behind queued kernels costs nothing.
2. *Collections*: `gc.callbacks` times them and the probe takes them off the part they interrupt, so that a pause inside
   the wait never reaches it. (A tool that does not called `gc.collect()` in every step a slow loader.) Inside workers
   they are timed apart from the data set and `collate_fn`, and are a part of the making with a name of its own.
3. *Start* of iterators and workers: timed by itself, and no batch could have been there earlier.
4. *Making or receiving.* A queue that is empty on arrival: the batch is waited for until it is made, and what receiving
   it takes passes while the next one is made, so making has the time, up to what making a batch takes. A queue that
   held batches: the loader keeps up, and making explains only what it takes longer than the loop; the rest is the
   hand-over. (256 tensors a batch took 116 ms to receive, with a full queue, and 0.7 to make.)
5. *Lack of a CPU* inside the making, before what the making does: run delay is the scheduler's count of a worker that
   wanted to run. It gets the blame from two fifths of the making on, before it is the largest part, because the advice
   for the others (more workers) makes it worse. (A transform with a third of its time lost so was still measured to be
   the transform.)
   What the making would still take with CPUs at once (`with_cpus`) is a cause of its own beside it.
6. *Storage, transform, collate, collections in the workers*: the largest part of the making.

Who had the CPU (`lack_of_cpu`)

1. The *quota*: the kernel counts the periods in which it stopped the group, and a stopped group waits for nobody.
2. The *job itself*, for what it wants beyond all CPUs: it would lack that without any neighbour.
3. *Neighbours*, if others used the CPU and next to none was idle.
4. Otherwise the job's own threads and workers, which wait for each other; unless others used the CPU and some was idle
   all the same: then nobody knows. Workers that are bound to fewer CPUs than the job has wait for each other anyway.

The rest of the step (`compute`)

1. *Collections*: timed one by one.
2. *CPU time*, by the training thread's clock: page faults at their timing on this machine, within the kernel's part of
   it; then what else ran. What receiving batches may have had of it is not known, and stays unexplained.
3. *Without a CPU*: run delay, or the time that the quota stopped the group where the kernel counts that instead. A
   thread that runs has none, so it gets what CPU time left: delay is counted over all steps, with hiccups that the
   steady step leaves out and with late awakenings from the wait for data. (A loop that trained for 0.75 ms a step,
   beside five neighbours, had 27 ms of it.)
4. *Blocked* is what is left by definition, when run delay was measured; without it, nobody knows.

What timings say would be saved by another number of threads, by float32 and by all vector instructions are views of the
same time and not further parts: each is taken of what the one before leaves, the one whose timing held the most of the
others first (threads were timed in the job's types and under its limit; types under its limit).

`perfdoctor.diagnosis` bills findings through the same `Ledger`.
"""

from .bursts import Bursts, bursts
from .by_loader import own_wait_ms
from .computing import compute
from .cpus import SIGNS, Signs, are_bound, lack_of_cpu
from .ledger import Ledger
from .overlap import HANDOVER_MS, Overlap, overlap, with_cpus
from .recalled import different, recalled, steps_ahead
from .starts import REBUILT, Restart, restart
from .timings import (
    PASSES_KEEP,
    ThreadGain,
    TypeCost,
    VectorExtensionCost,
    bfloat16_saves,
    in_step,
    one_thread_takes,
    thread_gain,
    tried,
    type_cost,
    vector_extension_cost,
)
from .waiting import input_wait, loader_waits

__all__ = [
    "HANDOVER_MS",
    "PASSES_KEEP",
    "REBUILT",
    "SIGNS",
    "Bursts",
    "Ledger",
    "Overlap",
    "Restart",
    "Signs",
    "ThreadGain",
    "TypeCost",
    "VectorExtensionCost",
    "are_bound",
    "bfloat16_saves",
    "bursts",
    "compute",
    "different",
    "in_step",
    "input_wait",
    "lack_of_cpu",
    "loader_waits",
    "one_thread_takes",
    "overlap",
    "own_wait_ms",
    "recalled",
    "restart",
    "steps_ahead",
    "thread_gain",
    "tried",
    "type_cost",
    "vector_extension_cost",
    "with_cpus",
]
