"""Where the whole job's time goes, and what its evaluations are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...recording.base import Missing, Site
from ...recording.lines import CodeLine
from .step import Divided


@dataclass(frozen=True, slots=True)
class JobParts(Divided):
    """Where the time of one rank goes from its process's start on, milliseconds; the sum is `JobAnatomy.wall_ms`."""

    start: float = 0.0
    """Of the interpreter, until it ran the first line of ours."""
    imports: float = 0.0
    """Before the loop, on the main thread."""
    set_up: float = 0.0
    """From there to the first batch or forward pass: data set, model, optimizer."""
    first_step: float = 0.0
    """With what is done once: compilation, choosing kernels, starting workers."""
    warm_up: float = 0.0
    """The steps after it that were slower still."""
    other_phases: float = 0.0
    """Steps of phases that are not judged: a pretraining that is shorter than what follows it."""
    steady: float = 0.0
    """Steps after the warm-up, each as long as the steady step at most."""
    epoch_starts: float = 0.0
    """What steps take longer in which an iterator of a training loader starts."""
    evaluation: float = 0.0
    """On batches of a loader, with its waits and what lies between its forward passes."""
    inference: float = 0.0
    """Forward passes without training or loader: an agent that acts, or an evaluation on tensors in memory."""
    checkpoints: float = 0.0
    logging: float = 0.0
    """Printing, progress bars and trackers, from the first batch on."""
    between: float = 0.0
    """Between steps, beyond the steady step, and none of the others."""
    after: float = 0.0
    """From the last step until the job was gone; taking Python down is a part of it."""
    observing: float = 0.0
    """Of perfdoctor: its start, its windows and its timings."""


OBSERVED_WHOLE = Missing("the job was observed to its end")


@dataclass(frozen=True, slots=True)
class WholeJob:
    """The job that perfdoctor ended, had it gone on to the end of its loop: extrapolated, without perfdoctor."""

    wall_ms: float
    """What was observed once, and for all steps what the steps seen after the warm-up took."""
    parts: JobParts
    steps: int
    """By the loop's own numbers."""
    by: Literal["loops", "lightning", "transformers"]
    """Who says so: the job's own `for` statements, or its trainer."""
    at_most: bool
    """The trainer stops early where nothing gets better."""
    unseen: tuple[str, ...]
    """Parts that are not in it because none was seen: epoch starts, evaluations, checkpoints."""
    once: tuple[str, ...]
    """Parts that were seen once and count once, because it is not known how often they come."""


@dataclass(frozen=True, slots=True)
class JobAnatomy:
    """The observed job of one rank as a whole, as far as it was observed; only `whole` is extrapolated."""

    wall_ms: float
    """From the start of the process until the job was gone, or to the last step that was seen."""
    complete: bool
    """Whether the process came to its exit handlers."""
    stopped: bool
    """Whether perfdoctor ended the job: it would have gone on."""
    parts: JobParts
    steps: int
    """That were seen, steady or not."""
    whole: WholeJob | Missing = OBSERVED_WHOLE

    @property
    def steady_share(self) -> float:
        """Of the observed time: what a saving per steady step is taken off."""
        return self.parts.steady / self.wall_ms if self.wall_ms > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Decoding:
    """Sequences written without a cache: forward passes without gradients, each on all that the one before was given
    and one token more."""

    ms_per_step: float
    """In these passes, of all steps."""
    passes: float
    """In a step that holds some."""
    every_steps: float
    """Steps for one such step."""
    regular: bool
    """Whether so many steps hold some that the steady step holds its part of it."""
    at: Site | Missing
    """The line that makes them."""


@dataclass(frozen=True, slots=True)
class UnloadedPasses:
    """Forward passes in evaluation mode between two steps of training, many at a time, and without a loader."""

    ms: float
    """In them, each time."""
    passes: float
    """Each time."""
    samples: float
    """In one of them."""
    every_steps: float
    """Steps from one time to the next, on average."""
    at: Site | Missing
    """The line outside of modules that asks for them."""
    of_parts: bool = False
    """They are calls of parts of the model, by a method of its own: captions that are written word by word."""


@dataclass(frozen=True, slots=True)
class CollectedOutputs:
    """Outputs of forward passes that a trainer joins, batch by batch, for the metrics of an evaluation."""

    at: Site | Missing
    """The line of the user's that the trainer was called from."""
    ms: float
    """Of one evaluation, in joining them, and in making arrays of them."""
    bytes: float
    """Of one evaluation, losses and labels too."""


@dataclass(frozen=True, slots=True)
class Evaluations:
    """Evaluations between two steps of training, on batches of a loader or on held-out tensors, whichever take
    more time. Times are means of one evaluation, ms."""

    count: int
    every_steps: float
    """Steps from one to the next, median."""
    ms: float
    """With all that lies between its forward passes."""
    share: float
    """Of the loop's time from the first step on, without what perfdoctor took."""
    training_ms: float
    """What training took from one evaluation to the next, in steady steps."""
    batches: float
    """Forward passes of one evaluation."""
    forward_ms: float
    """In them."""
    wait_ms: float
    """For batches, the first one apart."""
    start_ms: float
    """Starting the iterator and its workers, waiting for its first batch, and ending them."""
    samples: int
    """In a batch; 0 where that is not known."""
    training_samples: int
    """In a batch of a training loader; 0 where that is not known."""
    num_workers: int
    persistent_workers: bool
    batch_at: Site | Missing
    """The line that decides how large its batches are, else the one that made the loader."""
    iterated_at: Site | Missing
    """The line that starts its iterator, or that calls the model on a held-out tensor."""
    asked_at: Site | Missing
    """The line that asks for it where training is, or where both are called from; else the same."""
    regular: bool = False
    """Whether so many steps hold one that they are the steady steps, and the steady step holds its part of it."""
    held_out: bool = False
    """Without a loader: forward passes of a model that trains, without gradients, on a tensor that it was given in
    two earlier steps. What is computed from their outputs is part of an evaluation, where operators were followed."""
    is_sure: bool = True
    """With a loader; or what is computed from these outputs was followed from operator to operator and is no part of
    training, which does not read the held-out tensors either."""
    by_sample: tuple[CodeLine, ...] | Missing = ()
    """The user's lines that run for each sample between a forward pass and the next, in the order of the code; `share`
    is of all that lies there, in one batch, as it is estimated without watching it."""
    collected: CollectedOutputs | None = None
    """None where no trainer is known to keep outputs."""

    @property
    def around_ms(self) -> float:
        """Between a forward pass and the next batch: losses, metrics, reads, what is kept of the output."""
        return max(0.0, self.ms - self.forward_ms - self.wait_ms - self.start_ms)


@dataclass(frozen=True, slots=True)
class LoggingLine:
    """A line that prints, draws a progress bar, or logs to a tracker, in the training loop."""

    name: str
    """The function that it calls: `print`, `the progress bar`, `add_histogram`."""
    site: Site | None
    calls_per_step: float
    ms_per_step: float
