"""Functions that are worth counting by call site: `torch.save`, `empty_cache`, what prints and logs."""

import functools
import time

from ..timeline import CHECKPOINT, LOGGING
from . import collected
from .checkpoints import SAVES, Checkpoints


class Calls:
    """Counts and times calls by (kind, site) until the next flush."""

    def __init__(self, recorder, loop, sites, guarded) -> None:
        self.recorder = recorder
        self.loop = loop
        self.sites = sites
        self.guarded = guarded
        self.checkpoints = Checkpoints(recorder, sites)
        self.saved = guarded("checkpoint", self.checkpoints.saved)
        self.muted: "set[str]" = set()
        """Kinds whose calls do nothing: a remedy."""
        self.cpu_began_ns = 0
        """CPU time of the thread when its latest save, or sync to disk, began."""
        self.in_trainer = 0
        """1 while a trainer's own function writes a whole checkpoint."""
        self.files_saved = 0
        """Calls of `torch.save` by the loop."""
        self.saved_in = -1
        """The step with the latest save; -1 before the first one."""
        self.reset()

    def reset(self) -> None:
        self.totals: "dict[tuple[str, int], list[int]]" = {}

    def began(self, part) -> "tuple[bool, int, int] | None":
        """Whether the call is timed, where it is made, and when; None inside another one of its part, and of a save
        in a thread beside the loop, for which nobody waits."""
        timed = part is not None and self.loop.on_training_thread()
        if timed and self.loop.timeline.stack.count(part) > (self.in_trainer if part == CHECKPOINT else 0):
            return None
        if part == CHECKPOINT and not timed:
            return None
        site = self.sites.here(2)
        if timed:
            self.loop.timeline.enter(part)
        if part == CHECKPOINT:
            self.cpu_began_ns = time.thread_time_ns()
        return timed, site, time.perf_counter_ns()

    def began_inside(self, part) -> "tuple[bool, int, int] | None":
        """The same; inside another one of its part it is counted, and no part of its own."""
        if part in self.loop.timeline.stack and self.loop.on_training_thread():
            return False, self.sites.here(2), time.perf_counter_ns()
        return self.began(part)

    def began_within(self, part) -> "tuple[bool, int, int] | None":
        """The same inside another one of its part; None of others."""
        return self.began_inside(part) if part in self.loop.timeline.stack else None

    def began_after_save(self, part) -> "tuple[bool, int, int] | None":
        """The same on the training thread, in a step that has saved; None of others."""
        if self.loop.on_training_thread() and self.saved_in == self.loop.timeline.step:
            return self.began(part)
        return None

    def began_in_loop(self, part) -> "tuple[bool, int, int] | None":
        """The same on the training thread, of the outermost of such calls; None of others."""
        if self.loop.on_training_thread() and self.loop.timeline.stack[-1] != LOGGING:
            return self.began(part)
        return None

    def ended(
        self, kind: str, part, call: "tuple[bool, int, int] | None", library: str, args: tuple, kwargs: dict
    ) -> None:
        """`call` is what `began` returned; None when it failed, or there is nothing to count. `library`: the module of
        what was called."""
        if call is None:
            return
        timed, site, began_ns = call
        took_ns = time.perf_counter_ns() - began_ns
        if timed:
            self.loop.timeline.leave(part)
        size = 0
        if kind in SAVES:
            cpu_ns = time.thread_time_ns() - self.cpu_began_ns
            self.saved_in = self.loop.timeline.step
            size = self.saved(site, args, kwargs, library, took_ns, cpu_ns) or 0
        elif kind == "save.copy":
            size = args[0].nbytes()
        elif kind == collected.KIND:
            size = collected.size(args)
        self.add(kind, site, took_ns, size)

    def trainer_began(self) -> bool:
        """A trainer begins a checkpoint: what it does around `torch.save` belongs to it. Whether that is timed."""
        if not self.loop.on_training_thread() or CHECKPOINT in self.loop.timeline.stack:
            return False
        self.loop.timeline.enter(CHECKPOINT)
        self.in_trainer = 1
        return True

    def trainer_ended(self, timed: "bool | None") -> None:
        """`timed` is what `trainer_began` returned; None when it failed."""
        if timed:
            self.in_trainer = 0
            self.loop.timeline.leave(CHECKPOINT)

    def file_saved(self) -> None:
        """`torch.save` is called, on whatever thread."""
        self.files_saved += self.loop.on_training_thread()

    def add(self, kind: str, site: int, took_ns: int, size: int = 0) -> None:
        """One call more, which wrote so many bytes."""
        total = self.totals.setdefault((kind, site), [0, 0, 0])
        total[0] += 1
        total[1] += took_ns
        total[2] += size

    def wrap(self, kind: str, original, part=None, began=None):
        """A stand-in for `original` that counts those of its calls that `began`, one of the methods above, does, and
        bills their time on the training thread to `part`."""
        began = self.guarded(kind, began or self.began)
        ended = self.guarded(kind, self.ended)
        library = getattr(original, "__module__", None) or ""

        @functools.wraps(original)
        def call(*args, **kwargs):
            if kind in self.muted:
                return None
            token = began(part)
            try:
                return original(*args, **kwargs)
            finally:
                ended(kind, part, token, library, args, kwargs)

        return call

    def in_whole(self, original):
        """A stand-in for a trainer's function that writes a whole checkpoint: all of its time is a checkpoint's."""
        began, ended = self.guarded("save", self.trainer_began), self.guarded("save", self.trainer_ended)

        @functools.wraps(original)
        def checkpoint(*args, **kwargs):
            timed = began()
            try:
                return original(*args, **kwargs)
            finally:
                ended(timed)

        return checkpoint

    def flush(self) -> None:
        """Queue what has been counted since the last call."""
        for (kind, site), (count, took_ns, size) in self.totals.items():
            numbers = {"count": count, "us": took_ns // 1000, "bytes": size, "step": self.loop.timeline.step}
            self.recorder.record("call", kind=kind, site=site, **numbers)
        self.totals = {}
