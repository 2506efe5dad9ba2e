"""Trials: blocks of steps with a remedy and without, in the job itself.

The launcher queues blocks and reads their records; it judges them, nothing is judged here. Between two blocks, and
when the queue is empty, the job runs on; with an empty queue no remedy is in place.
"""

import time

from .. import procfs, remedies
from . import catalogue
from .base import Remedy, UnsuitableError
from .throttling import Throttling

_COUNTERS = ("delay_us", "throttled_us")
"""Run delay of the training thread, throttling of the process's control groups: a block's record has their growth."""


class Trials:
    """The queue of blocks, the one that runs, and the remedies in place."""

    def __init__(self, probe) -> None:
        self.probe = probe
        self.queue: "list[dict]" = []
        self.block: "dict | None" = None
        self.applied = ""
        """The name, or the names joined by `+`, of what is in place."""
        self.remedies: list = []
        self.kept: list = []
        """In place for good."""
        self.working = False
        """Whether one of those has something to do in each step."""
        self.calming = 0
        self.draining: list = []
        """Withdrawn a few steps ago, and not yet out of what the job holds."""
        self.drains_until = self.step = 0
        self.epoch_ended = -1
        """The step at which a block of whole epochs ended."""
        self.broken = ""
        """Why no further remedy is tried: one could not be taken back."""
        self.failed: "set[str]" = set()
        self.busy = False
        self.throttling = Throttling()

    def ask(self, command: dict) -> None:
        """Queue a block."""
        if self.broken:
            self._tell(command, error=self.broken)
            return
        self.queue.append(command)
        self.busy = True

    def drop(self) -> None:
        """Forget all blocks; the job is as it was from the next boundary on."""
        self.queue.clear()
        self.block = None

    def keep(self, names: "list[str]", step: int) -> None:
        """Put remedies in place for good. One that fails is noted, and the job runs without it."""
        for name in remedies.ordered(names):
            remedy = None
            try:
                remedy = remedies.make(name, self.probe)
                remedy.apply()
                self.kept.append(remedy)
                self.busy = self.working = self.working or "optimizer" in remedy.needs
                error = ""
            except Exception as caught:
                error = _words(caught)
                if remedy is not None:
                    remedy.withdraw()
            self._write("applied", remedy=name, step=step, error=error)

    # -- at a step boundary -------------------------------------------------------------------------------

    def at_boundary(self, step: int, wall_us: int) -> bool:
        """A step of `wall_us` has ended. True when work was done here that is not the job's."""
        self.step = step
        if self.draining and step >= self.drains_until:
            self._drain_no_more()
        block = self.block
        if block is not None:
            if "began" not in block:
                return self._settle(step, wall_us)
            self._count(wall_us)
            if not _is_full(block):
                return False
            self._close(step)
        while self.block is None and self.queue and step >= self.queue[0].get("from", 0):
            self._open(self.queue.pop(0), step)
        if self.block is None and not self.queue:
            self._switch("")
            self.busy = self.working or bool(self.draining)
        return True

    def abandon(self) -> None:
        """The job ends: as it was."""
        self.queue.clear()
        self.block = None
        self.busy = False
        try:
            self._switch("")
        except Exception:  # said when it happened
            pass
        self._drain_no_more()

    def _open(self, command: dict, step: int) -> None:
        name = command.get("remedy") or ""
        if name in self.failed:
            return
        moved = name != self.applied
        began = time.perf_counter_ns()
        try:
            self._switch(name)
        except Exception as error:
            self._give_up(command, name, _words(error))
            return
        settle = max([int(command.get("settle", 0)), self.calming, *(remedy.settle for remedy in self.remedies)])
        self.block = {**command, "wall_us": [], "odd": [], "settling_us": []}
        self.block["started"] = self._started()
        self.block["settling"] = settle if moved else 0
        self.block["switch_us"] = (time.perf_counter_ns() - began) // 1000
        # A block of epochs may follow at once where one has just ended, and nowhere else.
        if not self.block["settling"] and (not command.get("epochs") or step == self.epoch_ended):
            self._measure(step)

    def _settle(self, step: int, wall_us: int) -> bool:
        """A step that does not count. True when the next one does."""
        block = self.block
        block["settling_us"].append(wall_us)
        epoch_began = self._epoch_began()
        if len(block["settling_us"]) < block["settling"] or (block.get("epochs") and not epoch_began):
            return False
        self._measure(step)
        return True

    def _measure(self, step: int) -> None:
        """The steps count from here on."""
        self.block.update(step=step, began=self._counters(), samples=self._samples())
        self.block["started"] = self._started()

    def _counters(self) -> dict:
        return {"delay_us": procfs.thread_delay_us(), "throttled_us": self.throttling.total_us()}

    def _samples(self) -> int:
        return self.probe.launcher.sent_samples + self.probe.loop.samples

    def _count(self, wall_us: int) -> None:
        block = self.block
        if self._epoch_began():
            block["odd"].append(len(block["wall_us"]))
        block["wall_us"].append(wall_us)

    def _epoch_began(self) -> bool:
        """Whether one did in this step: with its loader's start-up, and perhaps a validation run. Of a block of rounds
        from save to save, whether the step saved."""
        block, started = self.block, self._started()
        began = started != block["started"]
        block["started"] = started
        return began

    def _started(self) -> int:
        probe = self.probe
        return probe.calls.files_saved if self.block.get("by_save") else probe.loading.started

    def _close(self, step: int) -> None:
        block, self.block = self.block, None
        self.epoch_ended = step if block.get("epochs") else -1
        lost = next((why for why in (remedy.lost() for remedy in self.remedies) if why), "")
        if lost:
            self._give_up(block, self.applied, lost)
            return
        now, grown = self._counters(), {}
        for name in _COUNTERS:
            before, after = block["began"][name], now[name]
            grown[name] = None if before is None or after is None else after - before
        work = 1.0
        for remedy in self.remedies:
            work *= remedy.work
        self._tell(
            block,
            step=block["step"],
            n=len(block["wall_us"]),
            wall_us=block["wall_us"],
            odd=block["odd"],
            settling_us=block["settling_us"],
            switch_us=block["switch_us"],
            epochs=block.get("epochs", 0),
            samples=self._samples() - block["samples"],
            work=work,
            **grown,
        )

    def work(self) -> None:
        """What remedies in place do in each step, as the job would: in the job's time."""
        for remedy in (*self.kept, *self.remedies):
            remedy.at_step()

    # -- remedies -----------------------------------------------------------------------------------------

    def _switch(self, name: str) -> None:
        """Have exactly the remedies of `name` in place."""
        if name == self.applied:
            return
        # What one remedy needs to take hold, the job needs to be itself again.
        self.calming = max([remedy.settle for remedy in self.remedies], default=0)
        self._withdraw()
        for one in remedies.ordered(name.split(catalogue.COMBINED)) if name else ():
            remedy = remedies.make(one, self.probe)
            # First, so that one that fails half-way is taken back too.
            self.remedies.append(remedy)
            self._drain_no_more(type(remedy))
            remedy.apply()
        self.applied = name

    def _withdraw(self) -> None:
        self.applied = ""
        while self.remedies:
            remedy = self.remedies.pop()
            try:
                remedy.withdraw()
            except Exception as error:
                self.broken = f"a remedy could not be taken back ({_words(error)})"
                raise
            if remedy.drains:
                self.draining.append(remedy)
                self.drains_until = self.step + remedy.drains
                self.probe.loop.on_pass = self._drain

    def _drain(self) -> None:
        """A forward or backward pass starts, soon after something was taken back."""
        try:
            for remedy in self.draining:
                remedy.drain()
        except Exception as error:
            self.broken = f"a remedy could not be taken back ({_words(error)})"
            self._drain_no_more()

    def _drain_no_more(self, kind: type = Remedy) -> None:
        """Of remedies of this kind: they are out of the job, or back in it."""
        self.draining = [remedy for remedy in self.draining if not isinstance(remedy, kind)]
        if not self.draining:
            self.probe.loop.on_pass = None

    def _give_up(self, command: dict, name: str, why: str) -> None:
        """No more of this remedy; the job goes on without it."""
        self.failed.add(name)
        try:
            self._withdraw()
        except Exception:  # `broken` says why
            pass
        if self.broken:
            self.queue.clear()
        self.queue = [queued for queued in self.queue if queued.get("trial") != command.get("trial")]
        self._tell(command, error=self.broken or why)

    # -- out ----------------------------------------------------------------------------------------------

    def _tell(self, command: dict, **measured) -> None:
        named = {name: command.get(name) for name in ("trial", "block", "remedy")}
        self._write("block", **named, t=time.perf_counter_ns(), **measured)
        if self.probe.launcher.control is not None:
            self.probe.launcher.control.send(
                {"k": "block", "trial": command.get("trial"), "block": command.get("block")}
            )

    def _write(self, kind: str, **fields) -> None:
        self.probe.recorder.record(kind, **fields)
        self.probe.recorder.flush()


def _is_full(block: dict) -> bool:
    if block.get("epochs"):
        return len(block["odd"]) >= block["epochs"]
    return len(block["wall_us"]) >= block["steps"]


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, UnsuitableError) else f"{type(error).__name__}: {error}"[:300]
