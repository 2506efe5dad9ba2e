"""What a rank waits for others: behind its own backward pass, for buffers, and in collectives called from Python.

DistributedDataParallel's all-reduce makes a backward pass take as long on every rank, however late one of them is. Its
reducer notes when each gradient was there; what follows the last of them is no computing of this rank's. These times
count from the end of the forward pass, and are the host's: on a CUDA device nothing is waited for here.
"""

import functools
import os
import sys
import time
import weakref

import torch

from ..timeline import BACKWARD, COMMUNICATION
from . import parallel

_clock = time.perf_counter_ns
_FACTS = (
    "find_unused_parameters",
    "broadcast_buffers",
    "gradient_as_bucket_view",
    "static_graph",
    "num_parameter_tensors",
    "total_parameter_size_bytes",
    "bucket_cap_bytes",
)
"""Of DistributedDataParallel's own log."""
_REBUILT = 4
"""Steps until its log knows the buckets that it made in the order in which gradients came."""
_COLLECTIVES = "distributed_c10d.py"
_AROUND = "c10d_logger.py"
"""Torch's file of collectives, and that of what it wraps them in."""
_SHARDING, _PIPELINING = (os.sep + os.path.join("torch", "distributed", name, "") for name in ("fsdp", "pipelining"))
"""Folders of torch's own callers of collectives, which no line of the job's asks for."""
_SHARDED = ("all_gather", "reduce_scatter", "all_reduce")
"""What the first of them sends, by names in the functions that wait for it."""
_FUNCTIONAL = "torch.distributed._functional_collectives"
"""What tensor parallel layers send by; torch imports it when it is first needed."""
_SCALAR = 16
"""Numbers up to which an `all_reduce` is no reduction of gradients or activations: a loss, a count, a metric."""


class Communication:
    """Of one process; nothing here runs in a job of one rank."""

    def __init__(self, recorder, loop, calls, sites, guarded) -> None:
        self.recorder = recorder
        self.loop = loop
        self.calls = calls
        self.sites = sites
        self.guarded = guarded
        loop.pass_reduced = guarded("communication", self.pass_ended)
        self.watch_later = guarded("communication", self._watch_later)
        # It reads what torch keeps for itself: with a switch of its own, for rows are written around it.
        self.note_division = guarded("division", self._note_division)
        self.leave = bool
        """Takes our stand-ins out of torch."""
        self.places = None
        """What they are put into torch by; None where nothing is watched any more."""
        self.reset()

    def reset(self) -> None:
        self.model = None
        """A weak reference to the model that was reduced last."""
        self.last: "dict[int, int]" = {}
        """What each reducer said of its latest gradient, ns from the end of the forward pass."""
        self.steps: "dict[int, list[int]]" = {}
        """In which step each was heard last, how often in it, and how often in the one before."""
        self.told = self.divided = False
        self.had_peers = False
        """Whether it was one rank of several, when it was last asked."""
        self.own_ns = 0

    # -- DistributedDataParallel --------------------------------------------------------------------------

    def post_forward(self, original):
        """A stand-in for what ends its forward pass and makes the reducer ready for the next backward pass."""
        ready = self.guarded("communication", self._will_reduce)
        took = self.guarded("communication", self._searched)

        @functools.wraps(original)
        def post_forward(model, output):
            began = _clock()
            output = original(model, output)
            ready(model, began)
            took(model, began)
            return output

        return post_forward

    def _will_reduce(self, model, now: int) -> None:
        if torch.is_grad_enabled() and model.require_backward_grad_sync and self.loop.on_training_thread():
            if self.model is None or self.model() is not model:
                self.model = weakref.ref(model)
            self.loop.reductions[id(model)] = (self.model, now)

    def _searched(self, model, began: int) -> None:
        """With `find_unused_parameters` the graph was searched just now."""
        if model.find_unused_parameters and id(model) in self.loop.reductions:
            self.calls.add("dist.search", -1, _clock() - began)

    def pass_ended(self) -> None:
        """A backward pass ended, its part still open: what came after the last gradient was waiting for other ranks."""
        loop = self.loop
        line = loop.timeline
        if not loop.on_training_thread() or line.stack[-1] != BACKWARD:
            return
        now, ready, again = _clock(), 0, False
        for key, (model, since) in list(loop.reductions.items()):
            module = model()
            last = 0 if module is None else max(module.reducer.get_backward_stats(), default=0)
            if last != self.last.get(key, 0):  # else its pass is still to come: a job of several models
                self.last[key] = last
                del loop.reductions[key]
                ready = max(ready, since + last)
                again |= self._counted(key, line.step) > 1
        if ready:
            line.enter(COMMUNICATION)
            waited = max(0, min(now - ready, line.spent[BACKWARD]))
            line.spent[BACKWARD] -= waited
            line.spent[COMMUNICATION] += waited
            line.leave(COMMUNICATION)
            if line.borders is not None:
                line.borders.lasted(waited)
            self.calls.add("dist.gradients_again" if again else "dist.gradients", -1, waited)
            self.own_ns += _clock() - now

    def _counted(self, key: int, step: int) -> int:
        """The number of this reduction within its step."""
        heard = self.steps.setdefault(key, [step, 0, 0])
        if heard[0] != step:
            heard[:] = step, 0, heard[1]
        heard[1] += 1
        return heard[1]

    def reduced_per_step(self) -> "dict[int, int]":
        """How often each model was reduced in its latest step that has ended, by id()."""
        now = self.loop.timeline.step
        return {key: before if step == now else count for key, (step, count, before) in self.steps.items()}

    def _watch_later(self) -> None:
        """Put a stand-in around what the job has imported meanwhile."""
        module = sys.modules.get(_FUNCTIONAL)
        if module is not None and self.places is not None:
            self.places.put(module, "wait_tensor", self.wait(module.wait_tensor, "wait_tensor"))
            self.places = None

    def flush(self, optimizer) -> None:
        """Queue how the model is reduced, and the work divided, once."""
        model = self.model() if self.model is not None else None
        if self.loop.timeline.step < _REBUILT:
            return
        if not self.divided:
            self.divided = True
            self.note_division(optimizer, model)
        if model is None or self.told:
            return
        self.told = True
        log = model._get_ddp_logging_data()
        sizes = log.get("rebuilt_bucket_sizes") or log.get("bucket_sizes") or ""
        facts = {name: int(log[name]) for name in _FACTS if name in log}
        facts["made_at"] = self.sites.made_at(model)
        self.recorder.record("ddp", bucket_bytes=[int(size) for size in sizes.split(",") if size.strip()], **facts)

    def _note_division(self, optimizer, model) -> None:
        facts = parallel.division(optimizer, model) if self.place() else {}
        if facts:
            self.recorder.record("division", **facts)

    def place(self) -> dict:
        """This process among the ranks, as torch knows it: not every launcher sets RANK. Empty without a group."""
        distributed = torch.distributed
        if not distributed.is_available() or not distributed.is_initialized():
            return {}
        place = {"rank": distributed.get_rank(), "world_size": distributed.get_world_size()}
        self.had_peers = place["world_size"] > 1
        return place

    # -- collectives called from Python -------------------------------------------------------------------

    def wait(self, original, kind=""):
        """A stand-in for `Work.wait`, which every collective of Python's ends in, but none of the above; or for what
        those of another `kind` end in."""
        began = self.guarded("collectives", functools.partial(self._wait_began, kind))
        ended = self.guarded("collectives", self._wait_ended)

        @functools.wraps(original)
        def wait(*args, **kwargs):
            token = began()
            try:
                return original(*args, **kwargs)
            finally:
                ended(token)

        return wait

    def _wait_began(self, kind: str) -> "tuple | None":
        loop = self.loop
        if not loop.on_training_thread():
            return None
        if kind:
            return kind, -1, loop.timeline.enter(COMMUNICATION)
        # The outermost function of torch.distributed: `all_gather_object` gathers twice.
        frame, outermost = sys._getframe(3), None
        while frame is not None and frame.f_code.co_filename.endswith((_COLLECTIVES, _AROUND)):
            if frame.f_code.co_filename.endswith(_COLLECTIVES):
                outermost = frame
            frame = frame.f_back
        name = "wait" if outermost is None else outermost.f_code.co_name
        caller = "" if frame is None else frame.f_code.co_filename
        if _SHARDING in caller:
            asked = frame.f_code.co_name if outermost is None else name
            sent = next((kind for kind in _SHARDED if kind in asked), "wait")
            return f"fsdp_{sent}", -1, loop.timeline.enter(COMMUNICATION)
        if _PIPELINING in caller:
            return "pipeline", -1, loop.timeline.enter(COMMUNICATION)
        if name == "all_reduce" and outermost.f_locals["tensor"].numel() <= _SCALAR:
            name = "all_reduce_scalar"
        return name, self.sites.here(3), loop.timeline.enter(COMMUNICATION)

    def _wait_ended(self, token: "tuple | None") -> None:
        if token is not None:
            name, site, began = token
            self.calls.add(f"dist.{name}", site, self.loop.timeline.leave(COMMUNICATION) - began)
