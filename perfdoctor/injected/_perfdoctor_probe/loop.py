"""From events of the training loop (batch, forward, backward, optimizer) to steps.

A step ends at an optimizer step. With several optimizers one of them, the anchor, ends it: the first to step, or a
later one once that has stopped stepping or is gone. Without any optimizer step, it ends at the first event after the
update that follows a backward pass (`hooks.updates`); without any backward pass, a batch or a root forward ends it.
An optimizer that steps inside the backward pass (one per parameter) ends the step when that pass ends.
"""

import threading
import time
import weakref
from _thread import get_ident

from . import timeline as parts
from .hooks.updates import Updates
from .timeline import Timeline

_BATCHES_WITHOUT_OPTIMIZER = 4
"""Batches after which a loop is taken for one without optimizer; a sanity check before training has 2."""
_FORWARDS_WITHOUT_OPTIMIZER = 8
"""The same for a loop without loader."""
_UPDATES_WITHOUT_OPTIMIZER = 4
"""Updates by other means than an optimizer's step after which a loop is taken for one that has no optimizer."""
_LOST = 50
"""Steps of one other optimizer without a step of the anchor, or of another thread without one of the training
thread, after which the other takes its place."""

_ANEW = 3
"""Steps of one other optimizer, of so many of all others together: where each of many makes one by turns, the anchor
comes before any of them comes again."""
_EARLY_STEPS = 4
"""Optimizer steps that are announced one by one."""

_BEFORE_LOSS = (parts.OTHER, parts.OPTIMIZER)

_BATCH, _FORWARD, _BACKWARD, _OPTIMIZER = 1, 2, 3, 4
"""What speaks for a thread to be the training thread, in rising order."""


def _nothing() -> None:
    """What is no longer there."""


class Loop:
    """The state machine behind the step timeline. All methods are called from hooks, on any thread."""

    def __init__(self, recorder, on_boundary, on_early_step, sites, concurrency, guarded) -> None:
        self.recorder = recorder
        self.concurrency = concurrency
        # With a switch of its own: the loop can do without it.
        self.elsewhere_entered = guarded("concurrency", concurrency.entered)
        self.loop_entered = guarded("concurrency", concurrency.loop_entered)
        self.elsewhere_failed = guarded("concurrency", concurrency.failed)
        self.updates = Updates()
        # So has this.
        self.pass_began = guarded("updates", self.updates.pass_began)
        self.pass_ended = guarded("updates", self.updates.pass_ended)
        self.look_for_update = guarded("updates", self.updates.look)
        self.on_boundary = on_boundary
        self.on_early_step = on_early_step
        self.sites = sites
        self.faults = guarded.off
        self.on_kind = None
        """Told when steps begin to end at something else; set by whoever wants to know."""
        self.on_batch = None
        """Told of each batch that a loader gives; set by a window, for a few steps."""
        self.pass_reduced = None
        """Told of the end of a backward pass while there are `reductions`; set by `Communication`."""
        self.reset()

    def reset(self) -> None:
        """Forget everything: at install, and in a forked child."""
        self.moving = threading.RLock()
        """Held while the loop moves to another thread or its boundary is announced: rows are written once."""
        self.timeline = Timeline()
        self.thread = 0
        self.quick = 0
        """The training thread, as long as `shortcuts` may do the work of the methods here; else 0."""
        self.claim = 0
        self.foreign_steps = 0
        self.device_boundary = None
        """Also told of every boundary, after all else; set by a `DeviceClock` that runs."""
        self.due_ns = 0
        """When the next boundary must be announced; set by whoever takes the announcement."""
        self.reductions: "dict[int, tuple]" = {}
        """Models whose next backward pass reduces gradients over ranks; kept by `Communication`."""
        self.on_pass = None
        """Also told of the start of each root forward and backward pass; set by trials, for a few steps."""
        self.kind = ""
        self.inside_forward = False
        self.step_pending = False
        self.updates.reset()
        self.own_pass = False
        """Whether the backward pass under way may be a step's own, in a job without an optimizer."""
        self.passed: "int | None" = None
        """Nanoseconds of the step that were in no part when such a pass ended; None once an update was seen."""
        self.updated = 0
        self.anchor = 0
        """The optimizer that ends steps, by `id()`; 0 before there is one."""
        self.anchored = _nothing
        """Gives it, or None once it is gone: a loop that makes one for each fold or day goes on with the next."""
        self.others: "dict[int, int]" = {}
        self.optimizer_steps = 0
        self.batches = 0
        self.drawing: "list[int] | None" = None
        """Of the iterator that the loop has asked for a batch last, see `Loading.iterators`."""
        self.forwards = 0
        self.samples = 0
        self.forward_began_ns = 0
        self.eval_with_grad_ns = 0
        self.eval_with_grad_site = -1
        self.eval_with_grad: "dict[int, list[int]]" = {}
        """Forwards in evaluation mode whose graph nobody used, and their nanoseconds, by line."""

    # -- whose loop it is ---------------------------------------------------------------------------------

    def _is_mine(self, ident: int, claim: int) -> bool:
        """Whether `ident` is the training thread, now that something of strength `claim` happened on it."""
        if self.thread == ident:
            self.claim = claim if claim > self.claim else self.claim
            return True
        if claim <= self.claim:
            return False
        self._adopt(ident, claim)
        return True

    def _adopt(self, ident: int, claim: int) -> None:
        with self.moving:
            self.thread = ident
            self.quick = 0
            self.claim = claim
            self.foreign_steps = 0
            self.timeline = Timeline(self.timeline)
            self.inside_forward = self.own_pass = False
            self.passed = None
            if claim == _FORWARD and self.kind != "optimizer":
                # What the other thread does (it feeds this one, say) ends no step any more.
                self.kind, self.batches = "" if self.kind == "batch" else self.kind, 0

    def on_training_thread(self) -> bool:
        """False also before there is one."""
        return self.thread == get_ident()

    # -- batches ------------------------------------------------------------------------------------------

    def batch_wanted(self) -> int:
        """The loop asks its loader for a batch. Returns the time now, ns; 0 on another thread."""
        ident = get_ident()
        if self.thread != ident and not self._is_mine(ident, _BATCH):
            return 0
        line = self.timeline
        if parts.OPTIMIZER in line.stack:
            # The step raised and the job went on: its post hook never came.
            line.drop(parts.OPTIMIZER)
        if self.passed is not None:
            self._find_update(before_batch=True)
        if self.kind == "batch":
            self._end_step()
        return line.enter(parts.INPUT)

    def iterator_wanted(self) -> bool:
        """The loop asks for an iterator of its loader: waiting for input too, but no step ends here."""
        ident = get_ident()
        if self.thread != ident and not self._is_mine(ident, _BATCH):
            return False
        self.timeline.enter(parts.INPUT)
        return True

    def iterator_arrived(self) -> None:
        """The iterator is there, or the loader is exhausted."""
        self.timeline.leave(parts.INPUT)

    def batch_arrived(self) -> int:
        """The batch is there; only called after `batch_wanted` gave a time. Returns the time now, ns."""
        now = self.timeline.leave(parts.INPUT)
        self.batches += 1
        if not self.kind and self.batches >= _BATCHES_WITHOUT_OPTIMIZER:
            self._become("batch")
        if self.forwards == 0:
            self.timeline.micro += 1
        return now

    # -- forward and backward -----------------------------------------------------------------------------

    def forward_began(self) -> bool:
        """A module is called: True when it is a root, on whatever thread."""
        ident = get_ident()
        if self.thread != ident or self.claim < _FORWARD:
            if not self._is_mine(ident, _FORWARD) and not self._takes_over(ident):
                entered = self.elsewhere_entered(ident)
                if self.concurrency.on:
                    self.quick = 0
                return entered
        elif self.inside_forward:
            return False
        if self.passed is not None:
            self._find_update()
        if self.on_pass is not None:
            self.on_pass()
        self.inside_forward = True
        self.forward_began_ns = self.timeline.enter(parts.FORWARD)
        if self.concurrency.on:
            self.loop_entered(ident)
        return True

    def _takes_over(self, ident: int) -> bool:
        """Whether the loop moves here: its thread calls no model any more, others do. No training loop moves so."""
        if self.claim == _OPTIMIZER or ident in self.concurrency.inside or not self.concurrency.has_lost(self.thread):
            return False
        self._adopt(ident, _FORWARD)
        return True

    def forward_failed(self) -> None:
        """It raised."""
        ident = get_ident()
        if self.concurrency.on:
            self.elsewhere_failed(ident)
        if self.thread != ident:
            return
        self.inside_forward = False
        self.timeline.leave(parts.FORWARD)

    def forward_left(self) -> int:
        """It returned; nanoseconds it took. `forward_ended` follows."""
        self.inside_forward = False
        return self.timeline.leave(parts.FORWARD) - self.forward_began_ns

    def forward_ended(self, took_ns: int, has_parameters: bool, useless_graph: bool, gradients: bool = True) -> None:
        """It ended. `useless_graph`: in evaluation mode, with gradients enabled, and the output has a graph.
        `gradients`: enabled, so that a loss may follow."""
        line = self.timeline
        if self.eval_with_grad_ns:
            # The forward before this one recorded a graph in evaluation mode and no backward pass used it.
            total = self.eval_with_grad.setdefault(self.eval_with_grad_site, [0, 0])
            total[0] += 1
            total[1] += self.eval_with_grad_ns
            self.eval_with_grad_ns = 0
        if has_parameters:
            if self.forwards == 0:
                line.micro = 0
            self.forwards += 1
            line.micro += 1
            if useless_graph:
                self.quick = 0
                self.eval_with_grad_ns = took_ns
                self.eval_with_grad_site = self.sites.here(2)
            if self.kind not in ("optimizer", "backward"):
                self._count_forward()
        if gradients and line.stack[-1] in _BEFORE_LOSS:
            line.stack.append(parts.LOSS)

    def _count_forward(self) -> None:
        if self.thread != get_ident():
            return  # the loop has moved since this forward began
        if self.kind == "forward":
            self._end_step()
        elif not self.kind and self.batches == 0 and self.forwards >= _FORWARDS_WITHOUT_OPTIMIZER:
            self._become("forward")

    def backward_began(self, args: tuple, accumulates: bool) -> bool:
        """A backward pass starts, with what it was called. False on another thread.

        `accumulates`: in the `.grad` of the parameters.
        """
        if self.concurrency.on:
            self.concurrency.seen.backwards += 1
        ident = get_ident()
        if self.thread != ident and not self._is_mine(ident, _BACKWARD):
            return False
        if self.on_pass is not None:
            self.on_pass()
        self.eval_with_grad_ns = 0
        outermost = parts.BACKWARD not in self.timeline.stack
        self.timeline.enter(parts.BACKWARD)
        if outermost and self.kind != "optimizer":
            if self.passed is not None:
                self._find_update()
            self.own_pass = bool(self.pass_began(args, accumulates))
        return True

    def backward_failed(self) -> None:
        """It raised."""
        self.step_pending = self.own_pass = False
        self.timeline.leave(parts.BACKWARD)

    def backward_ended(self) -> None:
        """It ended; only called after `backward_began` said True."""
        self.timeline.leave(parts.BACKWARD)
        if self.own_pass and parts.BACKWARD not in self.timeline.stack:
            self.own_pass = False
            if self.kind != "optimizer":
                self.pass_ended()
                self.passed = self.timeline.spent[parts.OTHER]
                if self.forwards == self.batches == 0:
                    self.timeline.micro += 1
        if self.step_pending and parts.BACKWARD not in self.timeline.stack:
            self.step_pending = False
            self._end_step()

    def _find_update(self, before_batch: bool = False) -> None:
        """Something begins after a backward pass: a step has ended if the parameters were updated meanwhile."""
        in_weight = self.look_for_update()
        if in_weight is None:
            return
        line, other, self.passed = self.timeline, self.passed, None
        self.updated += 1
        if self.kind == "backward":
            line.boundary()
            if in_weight and before_batch:
                # Nothing else that we know of was done since the pass.
                spent = line.rows[-1][1]
                spent[parts.OPTIMIZER] += spent[parts.OTHER] - other
                spent[parts.OTHER] = other
                if line.borders is not None:
                    line.borders.was_update()
            if self.updates.regrouped:
                self._become("backward")
            self._tell(line)
        elif self.updated >= _UPDATES_WITHOUT_OPTIMIZER:
            self._become("backward")

    # -- optimizers ---------------------------------------------------------------------------------------

    def optimizer_began(self, optimizer, args, kwargs) -> None:
        """An optimizer's `step` starts: torch's pre-hook."""
        ident = get_ident()
        if self.thread == ident:
            self.foreign_steps = 0
            self.claim = _OPTIMIZER
        elif parts.BACKWARD in self.timeline.stack:
            return  # a thread of the autograd engine, which works for the training thread
        elif not self._is_mine(ident, _OPTIMIZER):
            self.quick = 0
            self.foreign_steps += 1
            if self.foreign_steps < _LOST:
                return
            self._adopt(ident, _OPTIMIZER)
        self.timeline.enter(parts.OPTIMIZER)

    def optimizer_ended(self, optimizer, args, kwargs) -> None:
        """An optimizer's `step` ended: torch's post-hook. Ends the step when it is the anchor's."""
        line = self.timeline
        mine = self.thread == get_ident()
        in_backward = parts.BACKWARD in line.stack
        if not mine and not in_backward:
            return
        self.optimizer_steps += 1
        if self.optimizer_steps <= _EARLY_STEPS:
            self.on_early_step(optimizer, self.optimizer_steps)
        ends_step = self._ends_step(optimizer)
        if in_backward or not ends_step:
            if mine:
                line.leave(parts.OPTIMIZER)
            if not ends_step:
                return
        if self.kind != "optimizer":
            self._become("optimizer")
        if in_backward:
            self.step_pending = True
        else:
            self._close(line)

    def _close(self, line: Timeline) -> None:
        """End the step in which the optimizer's part is still open."""
        line.boundary()
        # What was open until now has ended, or was never left (an exception of a signal handler, a step that
        # raised), or is an outer optimizer (ZeRO) about to end.
        del line.stack[1:]
        self.inside_forward = False
        self._tell(line)

    def _ends_step(self, optimizer) -> bool:
        identity = id(optimizer)
        if identity != self.anchor and self.anchored() is not None:
            count = self.others[identity] = self.others.get(identity, 0) + 1
            if count < _LOST and not (count >= _ANEW and sum(self.others.values()) >= _LOST):
                return False
        self.others.clear()
        self.anchor, self.anchored = identity, weakref.ref(optimizer)
        return True

    # -- boundaries ---------------------------------------------------------------------------------------

    def _become(self, kind: str) -> None:
        with self.moving:
            if self.kind == "optimizer":
                return  # another thread has stepped meanwhile, and nothing is stronger
            self.kind, self.passed = kind, None
            self.recorder.record("boundary", kind=kind, step=self.timeline.step, t=time.perf_counter_ns())
        if self.on_kind is not None:
            self.on_kind()

    def _end_step(self) -> None:
        line = self.timeline
        line.boundary()
        self._tell(line)

    def _tell(self, line: Timeline) -> None:
        """Whoever wants to know that a step has ended."""
        if line.boundary_ns >= self.due_ns:
            self.announce(line)
        if self.device_boundary is not None:
            self.device_boundary(line)

    def announce(self, line: Timeline) -> None:
        """A step has just ended, and its boundary is due. May end the job: nothing may follow."""
        with self.moving:
            if line is not self.timeline:
                return  # the loop has moved since this step ended
            ordinary = (
                self.kind == "optimizer"
                and self.claim == _OPTIMIZER
                and self.optimizer_steps >= _EARLY_STEPS
                and not self.eval_with_grad_ns
                and not self.concurrency.on
                and not self.faults
                and self.device_boundary is None
                and self.on_pass is None
                and line.borders is None
            )
            self.quick = self.thread if ordinary else 0
            self.on_boundary(line)
