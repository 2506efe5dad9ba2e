"""A device that works off what it is asked for, one after another, on a clock that a test moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import recordings

from perfdoctor.injected._perfdoctor_probe import records, timeline
from perfdoctor.injected._perfdoctor_probe.guard import Guard
from perfdoctor.injected._perfdoctor_probe.hooks.device_clock import DeviceClock
from perfdoctor.injected._perfdoctor_probe.loop import Loop
from perfdoctor.injected._perfdoctor_probe.recorder import columns
from perfdoctor.recording.model import ProcessRecording
from perfdoctor.recording.reader import ProcessFile


class FakeEvent:
    """Reached when all that was asked for before it is done."""

    def __init__(self, device: FakeDevice) -> None:
        self.device = device
        self.recorded = 0
        self.at_ns = 0

    def query(self) -> bool:
        self.device.queries += 1
        return self.at_ns <= self.device.host_ns

    def elapsed_time(self, other: FakeEvent) -> float:
        """Milliseconds. As torch does, refuses while one of them has not been reached."""
        if max(self.at_ns, other.at_ns) > self.device.host_ns:
            raise RuntimeError("both events must be completed")
        return (other.at_ns - self.at_ns) / 1e6


class FakeDevice:
    """Stands for `device_clock.Cuda`, and for the device behind it. Its clock is ahead of the host's by an hour."""

    LATENCY_NS = 8_000

    def __init__(self) -> None:
        self.host_ns = 1_000_000_000
        self.free_ns = 0
        self.is_capturing = False
        self.is_elsewhere = False
        self.queries = 0
        self.made: list[FakeEvent] = []

    # What the job does.

    def host(self, ms: float) -> None:
        """The host works, or waits for something other than the device."""
        self.host_ns += int(ms * 1e6)

    def ask(self, ms: float) -> None:
        """Enqueue work."""
        self.free_ns = max(self.free_ns, self.host_ns + self.LATENCY_NS) + int(ms * 1e6)

    def synchronise(self) -> None:
        """The job waits for the device, as `.item()` does."""
        self.host_ns = max(self.host_ns, self.free_ns)

    # The seam.

    def now(self) -> int:
        return self.host_ns

    def event(self) -> FakeEvent:
        self.made.append(FakeEvent(self))
        return self.made[-1]

    def record(self, event: FakeEvent) -> None:
        event.recorded += 1
        event.at_ns = self.free_ns = max(self.free_ns, self.host_ns + self.LATENCY_NS)

    def capturing(self) -> bool:
        return self.is_capturing

    def elsewhere(self) -> bool:
        return self.is_elsewhere


class Records:
    """Takes records as they are."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    def record(self, kind: str, /, **fields: Any) -> None:
        self.found.append({"k": kind, **fields})


class _Silent:
    """Neither sites nor other threads matter here."""

    on = False
    inside: tuple[int, ...] = ()

    def __getattr__(self, name: str) -> Any:
        return lambda *_: -1


class Job:
    """The hooks of a training loop, called by hand: ms of the host and of the device for each part."""

    BETWEEN_MS = 0.05
    """What a loop does between two steps."""

    def __init__(self, monkeypatch: Any) -> None:
        self.device = FakeDevice()
        monkeypatch.setattr(timeline, "_clock", self.device.now)
        monkeypatch.setattr(timeline, "_cpu_clock", lambda: 0)
        self.records = Records()
        self.faults: list[tuple[str, str]] = []
        guarded = Guard(lambda hook, error: self.faults.append((hook, str(error))))
        self.loop = Loop(self.records, lambda line: None, lambda *_: None, _Silent(), _Silent(), guarded)
        self.clock = DeviceClock(self.records, self.loop, guarded)

    def step(
        self,
        wait: float = 0.0,
        forward: tuple[float, float] = (1.0, 1.0),
        loss: tuple[float, float] = (0.0, 0.0),
        backward: tuple[float, float] = (1.0, 1.0),
        optimizer: tuple[float, float] = (1.0, 1.0),
        read: bool = False,
        micro: int = 1,
    ) -> None:
        """One step; `read`: it ends its forward with a synchronisation."""
        loop, device = self.loop, self.device
        device.host(self.BETWEEN_MS)
        for _ in range(micro):
            loop.batch_wanted()
            device.host(wait)
            loop.batch_arrived()
            assert loop.forward_began()
            self._work(forward)
            if read:
                device.synchronise()
            loop.forward_ended(loop.forward_left(), True, False)
            self._work(loss)
            loop.backward_began(((None,), None, False, False, ()), True)
            self._work(backward)
            loop.backward_ended()
        loop.optimizer_began(self, (), {})
        self._work(optimizer)
        loop.optimizer_ended(self, (), {})

    def _work(self, part: tuple[float, float]) -> None:
        host_ms, device_ms = part
        # Asked for bit by bit, as kernels are.
        for _ in range(10):
            self.device.host(host_ms / 10)
            if device_ms:
                self.device.ask(device_ms / 10)

    def device_rows(self) -> list[dict[str, float]]:
        """The rows of all `device` records so far."""
        self.clock.flush()
        rows = []
        for record in self.records.found:
            if record["k"] == "device":
                columns = {name: value for name, value in record.items() if name not in ("k", "n", "left_out")}
                rows += [
                    {name: value[i] if isinstance(value, list | tuple) else value for name, value in columns.items()}
                    for i in range(record["n"])
                ]
        return rows

    def recording(self, directory: Path) -> ProcessRecording:
        """What the reader makes of this job's steps and marks."""
        self.clock.flush()
        line = self.loop.timeline
        rows = line.taken_rows()
        steps = {"k": "steps", "first": line.step - len(rows), "t": line.boundary_ns}
        written = [
            {"k": "process", "version": 2, "pid": 1, "ppid": 0, "t": 0},
            recordings.settings(cuda={"total_bytes": 80 << 30, "allocator": "native"}, device_clock=""),
            {"k": "boundary", "kind": "optimizer", "step": 0},
            steps | columns(records.STEP_COLUMNS, rows),
            *self.records.found,
        ]
        path = directory / "process-1-1.jsonl"
        path.write_text("".join(records.encoded(record) + "\n" for record in written))
        file = ProcessFile(path)
        file.refresh()
        recording = file.recording()
        assert recording is not None
        return recording

    def left_out(self) -> dict[str, int]:
        """Marked steps that came to nothing, by reason."""
        self.clock.flush()
        total: dict[str, int] = {}
        for record in self.records.found:
            for why, count in record.get("left_out", {}).items():
                total[why] = total.get(why, 0) + count
        return total
