"""Checkpoints that the loop waits for, too often or too long.

What it looks at
----------------
Every call of `torch.save`, of safetensors and of `torch.distributed.checkpoint`, in which the checkpoints of Lightning,
transformers and Accelerate end, of `pickle.dump`, `json.dump` and `numpy.save` and its like, and each copy of a
checkpoint that `ray.train.report` makes in its storage, with `torch.load` and what compresses (`gzip.compress`) in a
step that saves: how long the loop waited, how many bytes were written, by which line, how many steps lie between
two, how long `os.fsync` took, and in `torch.save` how long tensors were copied from a device. Of a line's first
checkpoints also what they hold: tensors, storages that they are views of, an optimizer's state, other objects, and what
of it was in the one before as it is (a data set that is a buffer of the model or one of its hyperparameters, layers
that do not train); and how long a copy of such memory takes, which is what a checkpoint would still take of the loop if
a thread wrote it.

Why it costs time
-----------------
Saving copies tensors to the host, pickles them and writes them, while the loop stands still. A checkpoint of 3 MB every
ten steps took a tenth of a small job's time. In a study of performance problems, synchronous checkpoints were the
largest group: 16 %, up to 96 s of an epoch of 168 s.

Example
-------
    if step % 10 == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")

How to fix
----------
Save so rarely that it costs 1 to 2 %: what a crash loses is the work since the last checkpoint, and that is all that
more of them buy. Where they must be so frequent, save a copy in a thread or with
`torch.distributed.checkpoint.async_save`, and leave out what is not needed to go on. `perfdoctor check --trial` tries
the most that fewer can give (`checkpoint.skipped` leaves a file that is there as it is) and the copy in a thread
(`checkpoint.background`), in blocks of steps from one save to another.

When it stays silent
--------------------
Below 5 % of the loop's time, and where at most one step saved: how often it does is not known then. A job that saves
once at its end waits for it once. A file that grows from save to save is slower-over-time's. Saves that get rarer, as
those of whatever is better than before, are an opportunity at most, of what they cost in the later half of the steps.

Limits
------
Bytes of what a trainer writes by itself, from a buffer in memory, are those of the buffer. A loop that saves every few
minutes is not observed for so long unless `--to-end` says so. No trial skips checkpoints: what is on the disk
afterwards would not be the job's. Copies from a device that the job makes itself before it saves are not told apart;
those that are told wait for what the device has yet to do, and have not been run on a GPU. Many files in every step are
taken for what the step reads again, such as activations that hooks of autograd write; reading them is not timed.
Whether a thread that writes gets a CPU is not known before a trial: the range reaches from none of its work beside the
loop to all. What never changes is told by versions of tensors and by samples of their bytes: of copies of a large table
of which few rows change, that may be wrong; and layers that are frozen are among it, which whoever loads the checkpoint
needs from somewhere else then.

References
----------
- Cao et al., "Understanding performance problems in deep learning systems", 2022
- Mohan et al., "CheckFreq: frequent, fine-grained DNN checkpointing", FAST 2021: how often is worth its cost
- PyTorch, "Asynchronous saving with distributed checkpoint"
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfdoctor.api.findings import (
    Alternative,
    Check,
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Outcome,
    Part,
    Severity,
    cannot_tell,
    clear,
    found,
    location,
    milliseconds,
    savings,
    share,
)
from perfdoctor.api.quantities import Checkpoints, Evidence, Job, Missing, Site, Step

from ._shared.lines import told_trainer
from ._shared.wording import in_words_of


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds, as shares of the step, with what steps that save take on top."""

    min_share: float = 0.05
    """One number to change; checkpoints that protect enough cost 1 to 2 %."""
    error_share: float = 0.30
    """A judgement: saving takes a quarter of the time."""


_WORTH = 0.02
"""Of the step, that checkpoints may cost after the fix: a crash in 50 hours then loses as much as they take."""
_EACH = 1.05
"""Steps from one to the next, mean, up to which it is one in every step."""
_SCRATCH = 4
"""Files in every step, from which on they are no checkpoints, but what the step itself reads again: a model and its
optimizer may be in two."""
_SPARED = (0.8, 2.0)
"""Of what writing them takes: reading them again takes as long, and is timed in `torch.load` alone. Activations that
hooks of autograd wrote and read took 43 % of a step, 29 % of it to write."""
_VIEWS = 1.25
"""Storage over what is shown of it, from which on views of larger tensors are worth naming."""
_MOSTLY = 4
"""The same, from which on to save clones is what to do first."""


_SAME = 0.5
"""Of what is saved, from which on what never changes is what to leave out first."""
_LEFT_OUT = (0.4, 1.0)
"""Of its share of a checkpoint's time, what leaving it out saves: files are made and removed all the same. Without 123
of 126 MB a checkpoint of Lightning's took half of its time."""


_HOW_OFTEN = ("save_steps", "save_strategy", "every_n_train_steps", "every_n_epochs")
"""Options of trainers."""


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """Steps that save are mostly no steady ones: their cost is spread over all steps."""
    step, saves = evidence.step, evidence.checkpoints
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if isinstance(saves, Missing):
        return cannot_tell(f"checkpoints were not seen: {saves}")
    cost = Cost(step, saves.ms_per_step, 0.0 if saves.is_steady else step.irregular_ms)
    if saves.saves == 1 and cost.share >= limits.min_share:
        return cannot_tell(f"one of {saves.steps} steps saved: how often it does is not known; let the job run longer")
    if saves.grows and saves.saves >= 2:
        return clear(
            "checkpoints take {cost_ms} per step ({cost_share}), and each is larger than the one before: that is "
            "slower-over-time's",
            *_seen(saves, cost),
        )
    if saves.saves < 2 or cost.share < limits.min_share:
        return clear(
            "checkpoints take {cost_ms} per step ({cost_share}): {saves:one} in {steps:step}", *_seen(saves, cost)
        )
    if saves.every < _EACH and saves.calls_per_save >= _SCRATCH:
        return found(_scratch(saves, step, cost, limits))
    return found(_frequent(saves, evidence.job, step, cost, limits))


def _seen(saves: Checkpoints, cost: Cost) -> tuple[Measurement, ...]:
    return (
        *cost.measured("checkpoints per step", "of the step, with what steps that save take on top"),
        Measurement("saves", saves.saves, "count", "steps that saved"),
        Measurement("steps", saves.steps, "count", "steps after the warm-up"),
        milliseconds("save_ms", saves.save_ms, "saving, in a step that does"),
    )


def _scratch(saves: Checkpoints, step: Step, cost: Cost, limits: Limits) -> Finding:
    return Finding(
        id="PD14.files-in-each-step",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="every step writes {files:file} of tensors: {cost_ms} per step ({cost_share})",
        reasoning="so many in a step are no checkpoints: what they hold may as well stay in memory until it is read",
        evidence=(
            *_seen(saves, cost),
            Measurement("files", round(saves.calls_per_save), "count", "files that a step writes"),
            Measurement("bytes", saves.bytes, "bytes", "written by one call"),
        ),
        location=location(saves.site),
        fix=Fix(
            text="Keep in memory what a step writes to read it again. Activations that do not fit: checkpoint the "
            "dearest layers, which computes them twice.",
            code="output = torch.utils.checkpoint.checkpoint(block, inputs, use_reentrant=False)\n"
            "# not torch.autograd.graph.saved_tensors_hooks(write, read) around the forward pass",
            risk="More memory is in use during a step.",
        ),
        savings=savings(
            step,
            _SPARED[0] * cost.ms,
            min((1.0 if saves.beside_ms else _SPARED[1]) * cost.ms, step.step_ms),
            "the measured saves; what reads them again is not timed",
            part=Part.OTHER if saves.is_steady else Part.EPOCH,
        ),
    )


def _frequent(saves: Checkpoints, job: Job, step: Step, cost: Cost, limits: Limits) -> Finding:
    training_ms = step.step_ms - step.parts.checkpoint
    # What is saved ever more rarely costs the rest of the job less than it did, and perhaps nothing.
    late = saves.late_saves
    rarer, left = (False, 1.0) if late is None else (True, 2 * late / saves.saves)
    later = (
        () if late is None else (Measurement("late_saves", late, "count", "of them in the later half of the steps"),)
    )
    wanted = _rounded(math.ceil(saves.save_ms / (_WORTH * training_ms)))
    part, room = (Part.OTHER, step.parts.checkpoint) if saves.is_steady else (Part.EPOCH, step.irregular_ms)
    most = left * min(saves.most_ms_per_step, room)
    low = 0.0 if rarer else min(cost.ms, most) - saves.save_ms / max(wanted, saves.every)
    views, constant = _unseen(saves), _constant(saves)
    if spared := views or constant:
        low, most = (part_of * spared * whole for part_of, whole in zip(_LEFT_OUT, (low, most), strict=True))
    notes, numbers = _needless(saves)
    staged = () if saves.stage_ms is None else (milliseconds("stage_ms", saves.stage_ms, "copying what is saved"),)
    return Finding(
        id="PD14.whole-storages" if views else "PD14.unchanging-content" if constant else "PD14.frequent-checkpoints",
        severity=Severity.NOTE if rarer else cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM if rarer else Confidence.HIGH,
        message="checkpoints write {storage_bytes} for {tensor_bytes} of tensors: {cost_ms} per step ({cost_share})"
        if views
        else "checkpoints hold {unchanged_bytes} that never change, and take {cost_ms} per step ({cost_share})"
        if constant
        else "checkpoints take {cost_ms} per step ({cost_share}): "
        + ("one in every step" if saves.every < _EACH else "one every {every:step}"),
        reasoning=("they get rarer, with {late_saves} of {saves} in the later half of the steps; " if rarer else "")
        + "the loop waits {save_ms} for each, and trains {between_ms} from one to the next"
        + ("; it writes {bytes}" if saves.bytes else "")
        + ("; {copy_ms} of that copying {copy_bytes} from the device, and waiting for it" if saves.copy_ms > 0 else "")
        + ("; {fsync_ms} of that in `os.fsync`, until the disk has them" if saves.fsync_ms > 0 else "")
        + ("; {beside_ms} of that compressing it, or reading it again" if saves.beside_ms > 0 else "")
        + notes,
        evidence=(
            *_seen(saves, cost),
            *later,
            Measurement("every", round(saves.every, 1), "count", "steps from one to the next"),
            milliseconds("between_ms", saves.every * training_ms, "training from one to the next"),
            milliseconds("most_ms", saves.most_ms, "by which a step that saves is longer than others"),
            Measurement("bytes", saves.bytes, "bytes", "written by one call"),
            milliseconds("fsync_ms", saves.fsync_ms, "in os.fsync, in a step that saves"),
            milliseconds("beside_ms", saves.beside_ms, "compressing and reading it again, in a step that saves"),
            milliseconds("copy_ms", saves.copy_ms, "in copies from a device, in a step that saves"),
            Measurement("copy_bytes", saves.copy_bytes, "bytes", "copied from a device, in a step that saves"),
            *staged,
            Measurement("wanted", wanted, "count", "steps from one to the next at which saving costs 2 %"),
            *numbers,
        ),
        location=location(_place(saves, job, views, constant)),
        fix=Fix(
            text=("Leave out what never changes (`{unchanged}`). " if constant and not views else "")
            + ("Save clones of what is a view: they hold what they show and no more. " if views else "")
            + _without_more(saves)
            + "Save less often, so that it costs 2 % at most; where it must be this often, "
            + _instead(saves),
            code=(_WITHOUT if constant and not views else "")
            + ("state = {{name: tensor.clone() for name, tensor in state.items()}}\n" if views else "")
            + in_words_of(
                job,
                f"if step % {wanted} == 0:\n    " + _call(saves),
                lightning=f"callbacks = [ModelCheckpoint(every_n_train_steps={wanted})]",
                transformers=f'args = TrainingArguments(..., save_strategy="steps", save_steps={wanted})',
            ),
            risk="A crash loses the work since the last checkpoint.",
            remedies=("checkpoint.skipped",) if _writes_files(saves) else (),
            alternatives=_in_background(saves),
        ),
        savings=savings(
            step,
            low,
            most,
            "the measured saves, less those that remain at 2 %, and at most all by which steps that save are longer",
            ceiling=most,
            part=part,
        ),
    )


_WITHOUT = (
    'self.register_buffer("{unchanged}", values, persistent=False)  # made anew, or read, as the model is\n'
    'self.save_hyperparameters(ignore=["{unchanged}"])  # where it is one\n'
)


def _constant(saves: Checkpoints) -> float:
    """The share of a checkpoint that was in the one before, as it is; 0 where that is not most of it."""
    held = saves.contents
    part = 0.0 if held is None or not held.storage_bytes else held.unchanged_bytes / held.storage_bytes
    return min(part, 1.0) if part >= _SAME else 0.0


def _place(saves: Checkpoints, job: Job, views: float, constant: float) -> Site | Missing | None:
    """The line that compresses it or reads it again, the one that makes what never changes a part of it, or the one
    that says how often to save: an option, else where the loop asks for it."""
    if saves.is_mostly_beside:
        return saves.beside_at
    held, asked_by_library = saves.contents, saves.site is None or bool(saves.site.via)
    at: Site | Missing | None = None
    if held is not None:
        at = held.unchanged_at if constant else held.asked_at if not (views or asked_by_library) else None
    return told_trainer(job, saves.site, *_HOW_OFTEN) if at is None or isinstance(at, Missing) else at


def _unseen(saves: Checkpoints) -> float:
    """The share of what is written that no tensor in it shows; 0 where that is not most of it."""
    held = saves.contents
    if held is None or not 0 < held.tensor_bytes * _MOSTLY < held.storage_bytes:
        return 0.0
    return 1 - held.tensor_bytes / held.storage_bytes


def _is_rays(saves: Checkpoints) -> bool:
    """Whether it is Ray Train that copies it; Ray Tune knows no other way."""
    return saves.contents is not None and saves.contents.library.startswith("ray.train.v2.")


def _call(saves: Checkpoints) -> str:
    return "ray.train.report(metrics, checkpoint=checkpoint)" if _is_rays(saves) else "torch.save(state, path)"


def _without_more(saves: Checkpoints) -> str:
    """What to leave out first where a checkpoint takes longest to be compressed or read again."""
    return "Save it as it is, and try only now and then whether it can be read. " if saves.is_mostly_beside else ""


def _instead(saves: Checkpoints) -> str:
    """What to do where a checkpoint must be this frequent."""
    held = saves.contents
    if _is_rays(saves):
        return "report it with `checkpoint_upload_mode=CheckpointUploadMode.ASYNC`, which copies it in a thread."
    if held is not None and held.library.startswith("torch.distributed.checkpoint"):
        return "save with `torch.distributed.checkpoint.async_save`, which returns when there is a copy."
    takes = "" if saves.stage_ms is None else ", which takes about {stage_ms} of {save_ms},"
    return f"copy what is saved{takes} and write the copy in a thread."


def _writes_files(saves: Checkpoints) -> bool:
    """Whether it is `torch.save` that does, which a trial has leave them alone."""
    return saves.contents is not None and saves.contents.library == "torch.serialization"


def _in_background(saves: Checkpoints) -> tuple[Alternative, ...]:
    """Where `torch.save` writes what lies in the host's memory. At best the loop waits for the copy alone; where the
    thread takes the CPU from the loop, it is spared no more than what saving waited for the disk."""
    held, stage_ms = saves.contents, saves.stage_ms
    if held is None or stage_ms is None or held.library != "torch.serialization" or held.device_bytes:
        return ()
    low, high = saves.save_ms * saves.waiting_share - stage_ms, saves.save_ms - stage_ms
    if high <= 0:
        return ()
    return (
        Alternative(remedy="checkpoint.background", low_ms=max(0.0, low) / saves.every, high_ms=high / saves.every),
    )


def _rounded(steps: int) -> int:
    """Up to a number that somebody would write."""
    size = int(10 ** (len(str(steps)) - 1))
    return math.ceil(steps / size) * size


def _needless(saves: Checkpoints) -> tuple[str, tuple[Measurement, ...]]:
    """What is in it that need not be, in words, and the numbers in them."""
    held = saves.contents
    if held is None or held.tensor_bytes <= 0:
        return "", ()
    notes = []
    if held.storage_bytes > _VIEWS * held.tensor_bytes:
        notes.append("its tensors are views of {storage_bytes} and show {tensor_bytes} of it: save clones")
    if held.unchanged_bytes > 0:
        notes.append("{unchanged_bytes} of it are as they were in the one before, most of that `{unchanged}`")
    if held.optimizer_bytes > 0:
        notes.append("{optimizer_share} of it is the optimizer's state, which only going on needs")
    if held.others:
        notes.append("it holds objects besides tensors ({others})")
    numbers = (
        Measurement("tensor_bytes", held.tensor_bytes, "bytes", "tensors in it"),
        Measurement("storage_bytes", held.storage_bytes, "bytes", "of the storages that they are views of"),
        share("optimizer_share", held.optimizer_bytes / held.tensor_bytes, "of it an optimizer's"),
        Measurement("unchanged_bytes", held.unchanged_bytes, "bytes", "as they were in the one before"),
        Measurement("unchanged", held.unchanged or "none", "text", "the largest of what is as it was"),
        Measurement("others", ", ".join(held.others) or "none", "text", "classes of other objects in it"),
    )
    return "".join(f"; {note}" for note in notes), numbers


CHECK = Check(code="PD14", name="checkpoint-io", title="checkpoints in the loop", limits=Limits(), examine=examine)
