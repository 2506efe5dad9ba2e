"""Evaluation and logging: what a loop does beside training, and how often.

What it looks at
----------------
Prints, log records, progress bars (tqdm), figures and pictures that are saved (matplotlib, Pillow), trackers
(TensorBoard, W&B, MLflow and its client, as trainers use them too) and `ray.train.report` in the training loop, each
call timed by the line that makes it; making W&B's histograms and images counts, and what `wandb.watch` does in the
backward pass, by that pass's line. Evaluations between two steps of training: how often, how long, in which batches,
and how much of the loop's time they take, by what: forward passes, waits, and what is done with their output, such as
joining it with that of all batches before, as the trainer of transformers does. An evaluation is known by its loader;
without one, by its input: the model that the job trains is called without gradients on a tensor that it was given in
two earlier steps. Forward passes without gradients that are each given the tokens of the one before, and one more: a
sequence written without a cache. Metrics of the training steps themselves: operators whose results end in single
numbers that no backward pass and no optimizer needs; and lines without operators, where `tolist()` hands them numbers
and none come back. Lines in which torch reads numbers to write a tensor out as text.

Why it costs time
-----------------
A print writes and flushes, a progress bar formats and redraws, a histogram copies a tensor and sorts it, and the loop
waits for each. Done in every step, that is a part of every step. In `ray.train.report` ranks wait for one another, and
then until Ray Train, which looks at its workers every 2 s, has taken in the report before. An evaluation costs what it
costs each time: every few steps, or in batches much smaller than training's, it can take longer than training. A metric
that takes the output apart, sample by sample (`.item()` in a loop, scikit-learn or torchmetrics called once a sample),
takes 8 us to 1 ms per sample where the whole tensor takes less than 5. One of the whole epoch so far takes longer with
each step. An f-string writes a tensor out before a logger knows that it will not show it: with two of them in a
`forward`, for `log.debug`, a job of small layers took 25.7 s, and 14.1 s without. A text of 90 tokens written without a
cache computes its first token ninety times.

Example
-------
    for x, y in loader:
        ...
        for name, p in model.named_parameters():
            writer.add_histogram(name, p, step)      # every step
        log.debug(f"hidden {hidden}")                # the level is INFO
        if step % 10 == 0:
            evaluate(model, DataLoader(val, batch_size=1))
    ...
            for output, label in zip(model(x), y):       # in evaluate
                right += int(output.argmax() == label)

How to fix
----------
Log every 50th step or so, and let progress bars redraw rarely (`tqdm(..., mininterval=5)`). Evaluate in batches at
least as large as training's; less often where evaluating takes a large part of the time. Metrics on whole tensors, or
outputs collected and looked at once at the end. `log.debug("hidden %s", hidden)` formats only what is shown. Texts with
a cache of keys and values.

When it stays silent
--------------------
Below 5 % of the step for logging, and below a quarter of the loop's time for evaluation (a tenth, where most steps
evaluate on a tensor): how often to evaluate is the user's choice. So it is an opportunity, unless evaluating takes
longer than training. What is done with an evaluation's outputs: where no line of the user's runs once for each sample
of a batch, as a library's loop does not, and below 5 % of the time. Workers that start again for each evaluation are
PD03's, forward passes with gradients PD08's. Python that works on lists: below a tenth of the step, and where any
tensor is made of a list outside the loader, as of what a simulator says. Operators: below 5 % of the step, where steps
read arrays that no loader gave them, where the number chooses something (`argmax`), and where more than 16 numbers are
kept or may have gone to numpy.

Limits
------
In a job that uses torch.compile, logging is not timed, nor is an evaluation followed line by line. A library that is
not known here is not seen. What a tracker does on a thread of its own is not counted. An evaluation without a loader is
left out where its tensor is made anew each time (a copy to the device, a part of the set drawn at random), which
nothing tells from an agent that acts, unless it makes eight passes and more in evaluation mode (then only their size is
judged: next to no samples each are an opportunity), where a copy of the model is evaluated, and below 0.1 ms. Whether
training needs the output is followed from operator to operator, on the CPU and without torch.compile; not through
numbers that the job reads, such as a line search's. Writing without a cache is seen on the CPU, in passes of 0.1 ms and
more. What follows a loader's last forward pass counts as the loop's.

References
----------
- PyTorch, "Performance tuning guide": avoid unnecessary CPU-GPU synchronization
- tqdm's documentation: `mininterval`
"""

from __future__ import annotations

from perfdoctor.api.findings import Check, Outcome, cannot_tell, clear, found, present, share
from perfdoctor.api.quantities import Evidence, Missing

from .as_text import tensors_as_text
from .decoding import without_cache
from .evaluating import sample_by_sample, small_batches, too_often
from .in_each_step import metrics_in_each_step
from .in_python import metrics_in_python
from .limits import Limits
from .logging_calls import logging
from .outputs_kept import outputs_kept
from .unloaded import small_passes


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """Logging, and evaluations where there are some."""
    step, evaluations = evidence.step, evidence.evaluations
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if isinstance(evidence.logging, Missing) and isinstance(evaluations, Missing):
        return cannot_tell(f"logging was not watched: {evidence.logging}")
    findings = [
        logging(evidence, step, limits),
        tensors_as_text(evidence, step, limits),
        metrics_in_python(evidence, step, limits),
        *metrics_in_each_step(evidence, step, limits),
        without_cache(evidence, step, limits),
        small_passes(evidence, step, limits),
    ]
    numbers = [share("logging_share", step.parts.logging / step.step_ms, "of the step, printing and logging")]
    if not isinstance(evaluations, Missing):
        findings += [
            small_batches(evidence, step, evaluations, limits),
            sample_by_sample(step, evaluations, limits),
            outputs_kept(evidence, step, evaluations, limits),
            too_often(evidence, step, evaluations, limits),
        ]
        numbers.append(share("evaluation_share", evaluations.share, "of the loop, evaluating"))
    some = present(*findings)
    if some:
        return found(*some, measurements=tuple(numbers))
    if isinstance(evaluations, Missing):
        return clear("logging takes {logging_share} of the step; the job was not seen to evaluate", *numbers)
    return clear("logging takes {logging_share} of the step, evaluation {evaluation_share} of the loop", *numbers)


CHECK = Check(
    code="PD20",
    name="evaluation-and-logging",
    title="evaluation and logging in the loop",
    limits=Limits(),
    examine=examine,
)
