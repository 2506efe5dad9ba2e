"""What several requests would take in one batch: the operators of one forward, recorded once, timed here.

One forward of the loop's thread runs under a dispatch mode that notes its operators. Between later steps those that
can be called with tensors of our own are timed as they were, and with the first dimension of everything that is no
parameter or buffer as many times as long. By CPU time of the thread, with one intra-op thread: other threads go on
with the job meanwhile. The same operators are timed with the job's intra-op threads and with one, by the clock.
"""

import ctypes
import time
from _thread import get_ident

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..rows import milliseconds
from . import replay

_REPLAYABLE = frozenset(
    "aten::" + name
    for name in (
        "mm bmm addmm baddbmm linear matmul convolution conv1d conv2d relu gelu silu tanh sigmoid elu leaky_relu "
        "hardtanh add mul sub div cat native_layer_norm layer_norm native_group_norm _softmax softmax _log_softmax "
        "log_softmax max_pool2d max_pool2d_with_indices avg_pool2d adaptive_avg_pool2d _adaptive_avg_pool2d mean sum "
        "_native_batch_norm_legit_no_training scaled_dot_product_attention "
        "_scaled_dot_product_flash_attention_for_cpu clone"
    ).split()
)
"""Pure, without random numbers. Batch norm in evaluation mode only: the other kind updates its buffers."""
_ELEMENTS = 1 << 24
_KINDS = 64
"""Kinds of operators kept; a forward has seldom more."""
_LIMIT_NS = 120_000_000
"""For one round."""
_ROUNDS = 5
_PAUSE_NS = 700_000_000
_MOST_COPIES = 64
_SHORT_NS = 300_000
_ATTEMPTS = 7
_cpu_clock = time.thread_time_ns
_clock = time.perf_counter_ns


class Recording(TorchDispatchMode):
    """Notes the operators of one forward on this thread."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = get_ident()
        self.ops = 0
        self.noted: "dict[tuple, list]" = {}
        self.inference = torch.is_inference_mode_enabled()
        self.__enter__()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # As in the call-site window: else torch imports Dynamo.
        return False

    def stop(self) -> None:
        """Leave the mode, which the job's own modes around it have left by now."""
        self.__exit__(None, None, None)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        try:
            self._note(func, args, kwargs or {})
        except Exception:  # a tensor subclass, say: this operator is not timed
            pass
        return func(*args, **(kwargs or {}))

    def _note(self, func, args, kwargs) -> None:
        if getattr(func, "is_view", False):  # nothing is computed
            return
        self.ops += 1
        if func._schema.name not in _REPLAYABLE or "out" in kwargs or len(self.noted) >= _KINDS:
            return
        plan = [_planned(value) for value in args], {name: _planned(value) for name, value in kwargs.items()}
        key = (func, str(plan))
        known = self.noted.get(key)
        if known is None:
            self.noted[key] = [func, plan, 1]
        else:
            known[2] += 1


class _Tensor:
    """A tensor as far as it takes to make another like it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
            raise TypeError
        self.shape = tuple(tensor.shape)
        self.stride = tensor.stride()
        self.dtype = tensor.dtype
        self.storage = tensor.untyped_storage().data_ptr()

    def __repr__(self) -> str:
        return f"{self.shape}{self.stride}{self.dtype}"

    def made(self, copies: int, own: "set[int]"):
        """Ones; the first dimension `copies` times as long unless the module owns the memory."""
        shape = self.shape
        if self.storage in own or not shape:
            copies = 1
        if shape:
            shape = (copies * shape[0], *shape[1:])
        made = torch.ones(shape, dtype=self.dtype)
        if len(shape) == 2 and self.stride[0] == 1 and self.stride[1] > 1:  # a transposed weight
            made = made.t().contiguous().t()
        return made


def _planned(value):
    if isinstance(value, torch.Tensor):
        return _Tensor(value)
    if isinstance(value, (list, tuple)):
        return [_planned(item) for item in value]
    return value


def _filled(value, copies: int, own: "set[int]"):
    if isinstance(value, _Tensor):
        return value.made(copies, own)
    if isinstance(value, list):
        return [_filled(item, copies, own) for item in value]
    return value


class RequestMicrobenchmark:
    """Records once, then timings round by round."""

    def __init__(self, copies: int) -> None:
        self.copies = min(copies, _MOST_COPIES)
        self.noted = None
        self.calls: list = []
        self.ops = self.timed = 0
        self.left = 0
        self.due_ns = 0
        self.threads = torch.get_num_threads()
        self.set_threads = _thread_setter() if self.threads > 1 else None

    def record(self) -> Recording:
        """Start to note the operators of the forward that begins now on this thread."""
        return Recording()

    def recorded(self, recording: Recording, module) -> None:
        """That forward is over: make what is to be timed."""
        recording.stop()
        self.noted = recording.noted, _owned(module)
        self.ops = recording.ops
        self.left = _ROUNDS

    def is_due(self, now_ns: int) -> bool:
        return self.left > 0 and now_ns >= self.due_ns and replay.alone()

    def round(self) -> "dict | None":
        """One round; None where nothing can be timed. The first makes the tensors."""
        self.left -= 1
        if torch.get_num_threads() != self.threads or (self.threads > 1 and self.set_threads is None):
            self.left = 0
            return None
        with torch.inference_mode():
            if self.noted is not None:
                self._make()
            if not self.calls:
                self.left = 0
                return None
            timings = self._round()
        self.due_ns = _clock() + _PAUSE_NS
        return {"copies": self.copies, "ops": self.ops, "timed": self.timed, "threads": self.threads, **timings}

    def _make(self) -> None:
        (noted, own), self.noted = self.noted, None
        began = _clock()
        for func, (args, kwargs), count in noted.values():
            if _clock() - began > _LIMIT_NS:
                break
            try:
                pair = []
                for copies in (1, self.copies):
                    values = [_filled(value, copies, own) for value in args]
                    named = {name: _filled(value, copies, own) for name, value in kwargs.items()}
                    if sum(value.numel() for value in values if isinstance(value, torch.Tensor)) > _ELEMENTS:
                        raise MemoryError
                    func(*values, **named)
                    pair.append((values, named))
            except Exception:  # not with arguments of this shape: it is not timed
                continue
            self.calls.append((func, *pair, count))
            self.timed += count

    def _round(self) -> dict:
        one = several = many_threads = one_thread = 0
        for func, single, batch, count in self.calls:
            if self.set_threads is not None:
                many_threads += count * _timed(func, single, _clock)
                self.set_threads(1)
            try:
                one_thread += count * _timed(func, single, _clock)
                one += count * _timed(func, single, _cpu_clock)
                several += count * _timed(func, batch, _cpu_clock)
            finally:
                if self.set_threads is not None:
                    self.set_threads(self.threads)
        return {
            "one_ms": milliseconds(one),
            "batch_ms": milliseconds(several),
            "team_ms": milliseconds(many_threads or one_thread),
            "single_ms": milliseconds(one_thread),
        }


def _timed(func, arguments: tuple, clock) -> int:
    """Nanoseconds of one call: the least of several if they are short, because other threads get in between."""
    values, named = arguments
    least = None
    for attempt in range(_ATTEMPTS):
        began = clock()
        func(*values, **named)
        took = clock() - began
        if attempt:  # the first finds the caches cold
            least = took if least is None else min(least, took)
            if took > _SHORT_NS:
                break
    return least


def _owned(module) -> "set[int]":
    """Where the module's own tensors live."""
    own = set()
    for tensor in (*module.parameters(), *module.buffers()):
        try:
            own.add(tensor.untyped_storage().data_ptr())
        except (RuntimeError, NotImplementedError):  # lazy or without storage: no operator reads it either
            continue
    return own


def _thread_setter():
    """OpenMP's own switch, which acts on the calling thread alone; `torch.set_num_threads` is inherited by threads
    that the job starts meanwhile."""
    try:
        return ctypes.CDLL(None).omp_set_num_threads
    except AttributeError:
        return None
