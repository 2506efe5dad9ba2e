"""Data loading: does the loop wait for its batches, and why.

What it looks at
----------------
The time each step waits in the loader's `__next__` (the first batch of an iterator apart), how many batches were
ready on arrival, and, where batches are made, the wall and CPU time of the data set and of `collate_fn`, their
run delay, what they read, and how long the workers' garbage collections take; the making of one batch line by line,
which tells the line of the data set or of `collate_fn` to look at first, how often it ran, and how often it asked a
process of `multiprocessing.Manager`. A loader that keeps up is clear, whatever its settings.

What need not be done again: for three more batches, the arguments and results of each call of the user's own functions,
and of libraries' functions that the user's code gives a file or its path, by hashes of what they hold; and after the
last step of a job that perfdoctor ends, two samples of the data set, each asked for twice.

What an epoch begins with: where steps take long at equal distances, the calls of the user's functions in three of them,
in the same way.

What need not be done at all: in one batch of each worker of an iterable data set, how long generators make samples
before they keep the worker's own share of them, by `islice(samples, worker, None, workers)` or by
`number % workers == worker` in an `if`, read from the source and from the values that these names have.

Of a trace: the device's idle time while the host is in the loader, and copies from pageable memory beside which
nothing runs. Why the loader is slow a trace does not say.

Why it costs time
-----------------
A step that waits 14 ms for data and trains for 10 could take 10. The same wait has different causes: too few workers,
storage that is slow to answer, a costly transform or `collate_fn`, batches that are expensive to hand from process to
process, a sampler that takes longer than the batch, a slow batch now and then, no CPU left to make them, garbage
collections in the workers, or an iterator that is built again and again. Each has its own fix, and the wrong one hurts:
two workers on trivial data made a loop run at 0.53x.

A filter bank, a window or a vocabulary is the same for every sample: made once it costs nothing. A file of many samples
that each of them opens is read as often; an `.npz` that is kept open reads an array anew whenever it is asked for. A
program that asked one for each of 32 samples took 2.9 times as long. So are samples in which nothing random is: a data
set that computes them in `__getitem__` computes all of them again in every epoch. A Python loop over the elements of a
sample pays for the interpreter at each, where NumPy runs the same loop inside one function.

The same holds for what a loop makes between its epochs: features of all recordings that are computed wherever a loader
is built are computed once for each epoch, and no step of training looks slow for it. A Lightning program that computed
them in `train_dataloader` trained 1.8 times as fast with those that it had.

A data set that keeps what it has made keeps it in the process that asks. A worker is a process of its own and ends with
the epoch, so the next one makes all of it again; workers that stay keep it. A program whose spectrograms were kept so
trained 1.9 times as fast with `persistent_workers=True`.

A sample that is a view of a tensor in which other samples lie between its numbers (one cell of a climate cube that is
kept variable by variable and day by day) is read a line of memory for each number: batches of 64 took 2 to 7 times as
long so as from a tensor that lies sample by sample.

A list or a dict that `multiprocessing.Manager` keeps lies in a process of its own: each look at it is a message there
and an answer, packed and unpacked, 0.1 ms for a row of 500 bytes. A program whose data set kept its rows so trained 2.5
times as fast with a plain list.

Batches that are there in time cost too when the workers that make them take training's CPUs: a filter bank computed
for each sample, beside training on two threads and two cores, made the step 2.5 times as long, though the loop waited
for a fifth of it or less.

A worker that makes every sample and then keeps the share that is its own does the work of all of them: two workers are
as slow as one, and take two CPUs for it. The line that keeps the share belongs before the work: there the step of a
program with two workers beside training on two cores took 66 ms, and 88 with the line after it.

A step that draws from several loaders waits for each of them, and for each it may be another cause: of two without
workers one took 66 ms for a batch and the other 19.

Example
-------
    loader = DataLoader(images, batch_size=64, num_workers=0)   # 20 ms to load, 10 ms to train
    for batch in loader:                                        # 30 ms per step; with one worker 20, with two 11
        train_step(batch)

    def __getitem__(self, index):
        return mel_bank(self.rate, 64) @ self.spectra[index]    # the bank is the same for every sample

    for epoch in range(epochs):
        loader = DataLoader(TensorDataset(features(waves), labels), batch_size=64)   # the features are those of before

    self.rows = Manager().list(rows)                            # each row is asked of another process
    self.rows = rows                                            # and here it is at hand

    yield from islice(map(decode, records), worker, None, workers)   # each worker decodes all records
    yield from map(decode, islice(records, worker, None, workers))   # and here its own

How to fix
----------
Follow the finding: each worker's share taken of the raw records and not of samples; what is the same for every sample
computed once, in `__init__` or by `functools.lru_cache`; samples without anything random, and what comes before it in
others, made once, before training;
whole arrays instead of a loop over their elements; rows in an array or a shared tensor instead of a `Manager`'s list;
more workers where they would keep up, fewer where handing over
costs more than making, batched indexing where single samples are cheap and many, indices drawn all at once where the
sampler is slow, cheaper transforms where no CPU is left, persistent workers where each epoch starts them anew or what
they keep would end with them, a larger `prefetch_factor` where a slow batch now and then holds up the others, pinned
memory where copies to the device are pageable.

When it stays silent
--------------------
When the exposed wait is below 5 % of the step. `num_workers=0` with a loader that keeps up is no finding, nor are the
up to 2 ms that any hand-over from a worker takes, nor a loader's own bookkeeping. A transform that takes long is an
opportunity and no ill unless something in it is done twice, or element by element: it may be what training needs.

A line that keeps a share counts only where each worker that was looked at keeps another one, where the decision reads
nothing of what was made, and where half of the making or more comes before it: to read all records and make samples of
the own ones is how a stream is divided. Every second frame of a video, crops and views of a sample, a sample that is
rejected for what it holds, results that a later sample needs and calls that take the next record are no waste.

What lies between two steps is followed only where long steps come at equal distances and take a twentieth of the time
or more, and where three of them come while the job is observed.

Functions that draw random numbers, by any generator within their reach, that change an object which they were given,
that return nothing, a flag, a number or two, or what cannot be compared (iterators, handles, objects of extensions),
and such as return different results for the same arguments do not count; nor do samples under 0.1 ms, samples that
would fill more than half of the free memory, and those of a loop of a single epoch. On a GPU, a wait that is hidden
behind queued kernels is not counted: it costs at most the time in which the device can have been without work.

Limits
------
Arguments are compared by what they hold; objects and arrays over 16 MB by their identity and what was set in them, so
that a function is taken to depend on nothing else. Within three batches few samples come again: what is the same for
some of them only is seen where they do. Of functions of libraries those alone are followed that the user's code gives a
file or its path: not one in C (`pickle.load`, `cv2.imread`), nor an image that a library's transform decodes. What
cannot be compared (a table, a large file) is taken to be the same where the file was not written since.
Two samples stand for all, also for what comes first in each before random numbers are drawn: not where these are drawn
at once, nor by a generator that is made for each sample. A data set whose objects cannot be compared, or that works in
workers only, is not known.
Jobs that end by themselves are not asked for samples.

Shares are seen in workers of the first two iterators that make eight batches, and in generators of the job's own: not
where an iterator is no generator (a class with `__next__`, a returned `islice`), where a library keeps the share,
where a number comes from a call or the environment, nor where samples are dropped for another reason than whose they
are. One process without workers that keeps a rank's share is not looked at.

Batches that a loop makes itself, without a DataLoader, cannot be told from other code. Storage and network look
alike: both are time off the CPU. Predictions for workers use a model of overlap (the wait of a step cannot be
less than the slowest resource allows), not a trial.

References
----------
- Deeplearning4j, "How to debug performance issues", step 3
- Mohan et al., "Analyzing and mitigating data stalls in DNN training", VLDB 2021: min(F, P, G)
- pytorch/pytorch#10260: per-sample indexing 15 times slower, and 1 or 2 workers slower still
- The profiler plugin of TensorBoard warned from 5 % of the step on, SageMaker's rules from 10 %
"""

from __future__ import annotations

from perfdoctor.api.causes import loader_waits
from perfdoctor.api.findings import Check, Outcome, cannot_tell, clear, found, not_applicable, present
from perfdoctor.api.quantities import Evidence, Missing, Step

from .causes import crowding_workers, together, waiting
from .epoch_starts import made_each_epoch
from .handover import pageable_copies
from .several import cases
from .starved import in_trace
from .waiting import Limits
from .workers import restarted_workers

_MINE_ITSELF = 0.25
"""From this share outside forward, backward and optimizer on, a loop without loader may be making batches there."""


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """The exposed wait first; only if it costs something, who is to blame for it."""
    step, loaders, waits = evidence.step, evidence.loaders, loader_waits(evidence)
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if evidence.job.traced and isinstance(loaders, Missing):
        return in_trace(evidence, step, loaders, limits)
    if isinstance(loaders, Missing) or isinstance(waits, Missing):
        return cannot_tell(f"loaders were not seen: {loaders}")
    each_epoch = made_each_epoch(evidence, step, limits)
    if not loaders:
        return found(*each_epoch) if each_epoch else _without_loader(step)
    every = cases(evidence, step, loaders, waits, limits)
    # What an epoch's start costs has a finding of its own; the other causes answer for the rest.
    waited = [case for case in every if case.is_worth_it]
    findings = (
        *(finding for case in waited for finding in waiting(case)),
        *(() if waited else present(together(every))),
        *(() if waited else (finding for case in every for finding in crowding_workers(case))),
        *present(*(restarted_workers(case) for case in every)),
        *each_epoch,
        *present(pageable_copies(evidence, step, limits)),
    )
    shared = every[0].shared(sum(wait.wait_ms for wait in waits))
    if findings:
        return found(*findings, measurements=shared)
    keeps = "the loader keeps up" if len(every) == 1 else "the loaders keep up"
    return clear(keeps + ": the loop waits {wait_ms} per step for data ({wait_share})", *shared)


def _without_loader(step: Step) -> Outcome:
    if step.parts.other / step.step_ms < _MINE_ITSELF:
        return not_applicable("no loader feeds the loop, and little time passes outside the model")
    return cannot_tell(
        "no loader feeds the loop, so making its data cannot be told from the other code outside the model"
    )


CHECK = Check(
    code="PD03", name="etl", title="data loading", limits=Limits(), examine=examine, aliases=("data-loading",)
)
