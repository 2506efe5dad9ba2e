"""How many steps a trainer is going to take, by the numbers that it goes by itself."""

import os

from .holdings import variables
from .named import attribute

_FIT_LOOP = os.path.join("pytorch", "loops", "fit_loop.py"), os.path.join("pytorch_lightning", "loops", "fit_loop.py")
_TRAINER = os.path.join("transformers", "trainer.py")
_ENDS_EARLY = ("EarlyStopping", "Timer")


def of(frame, step: int) -> "dict | None":
    """As `planned.planned`, from inside the optimizer's step `step`; None where the frame is no trainer's."""
    file = frame.f_code.co_filename
    ask = _transformers if file.endswith(_TRAINER) else _lightning if file.endswith(_FIT_LOOP) else None
    return ask(variables(frame, {"self"}).get("self"), step) if ask is not None else None


def is_loop(file: str) -> bool:
    """Whether it is where a trainer's loop is."""
    return file.endswith((*_FIT_LOOP, _TRAINER))


def package(file: str) -> str:
    """The folder of a trainer's file that all files of its package are in."""
    folder = os.path.dirname(file)
    return (os.path.dirname(folder) if file.endswith(_FIT_LOOP) else folder) + os.sep


def _transformers(trainer, step: int) -> "dict | None":
    state, args = attribute(trainer, "state"), attribute(trainer, "args")
    steps, done = attribute(state, "max_steps"), attribute(state, "global_step")
    if type(steps) is not int or type(done) is not int or steps <= done:
        return None
    by_epochs = (attribute(args, "max_steps") or 0) <= 0
    epoch = round(steps / max(1, attribute(args, "num_train_epochs") or 1)) if by_epochs else 0
    early = _ends_early(attribute(attribute(trainer, "callback_handler"), "callbacks"))
    # It counts a step once it is done.
    return _plan(step, steps - done - 1, epoch, "transformers", early)


def _lightning(loop, step: int) -> "dict | None":
    """Either of epochs and steps may be unlimited: -1, and infinitely many batches."""
    trainer, inner = attribute(loop, "trainer"), attribute(loop, "epoch_loop")
    epochs, batches, steps = loop.max_epochs, loop.max_batches, inner.max_steps
    # Two models trained by turns: the first optimizer's step ends one of ours.
    optimizers = max(1, len(trainer.optimizers)) if not trainer.lightning_module.automatic_optimization else 1
    left, epoch = [], 0
    if type(steps) is int and steps >= 0:
        left.append((steps - inner.global_step) // optimizers - 1)
    if type(batches) is int and batches > 0:
        accumulated = trainer.accumulate_grad_batches
        epoch = -(-batches // accumulated)
        if type(epochs) is int and epochs >= 0:
            done = loop.epoch_progress.current.processed * epoch
            left.append(epochs * epoch - done - -(-inner.batch_progress.current.ready // accumulated))
    return _plan(step, min(left), epoch, "lightning", _ends_early(trainer.callbacks)) if left else None


def _ends_early(callbacks) -> bool:
    return any(name in type(one).__name__ for one in callbacks or () for name in _ENDS_EARLY)


def _plan(step: int, left: int, epoch: int, by: str, at_most: bool) -> dict:
    return {"steps": step + max(0, left), "epoch": epoch, "by": by, "at_most": at_most}
