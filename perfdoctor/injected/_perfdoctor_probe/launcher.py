"""What the launcher is told and asks for: heartbeats up, commands down, at a step's boundary."""

import os

from . import control
from .engines import ray_worker
from .stop import engine
from .timeline import INPUT


class Launcher:
    """The probe's side of the connection; opened when first needed, and once more after a fork."""

    def __init__(self, probe) -> None:
        self.probe = probe
        self.control = None
        self.sent_samples = 0
        """All that heartbeats have told of."""
        self.listen = probe.guarded("control", self._listen)

    def leave(self) -> None:
        """In a forked child: the connection is the parent's, and closing our copy does not end it."""
        if self.control is not None:
            self.control.close()
            self.control = None
        self.sent_samples = 0

    def _listen(self, step: int, beat: bool) -> None:
        if self.control is None:
            self._connect()
        if beat:
            self._beat(step)
        for command in self.control.commands():
            self.obey(command, step)

    def hold(self, engine: str) -> None:
        """Wait to be ended together with the engine; returns once the launcher is gone, or where it never was."""
        if self.control is not None:
            self.control.tell({"k": "held", "engine": engine})
            while self.control.wait() is not None:
                pass

    def _connect(self) -> None:
        environment = os.environ
        self.control = control.Control(
            self.probe.recorder.run,
            {
                "k": "hello",
                "pid": os.getpid(),
                "rank": int(environment.get("RANK", 0)),
                "world": int(environment.get("WORLD_SIZE", 1)),
            },
        )
        if engine() == "Ray":
            ray_worker.introduce(self.probe)

    def obey(self, command: dict, step: int) -> None:
        """A command, as it comes."""
        probe, do = self.probe, command.get("do")
        if do == "stop":
            probe.stop_at = int(command["step"])
            self.control.send({"k": "stopping", "step": max(step, probe.stop_at)})
        elif do == "window":
            probe.windows.ask(str(command["name"]))
        elif do == "turns" and probe.turns is None:
            from .turns import Turns

            probe.turns = Turns(self.control, probe.windows, probe.collector)
        elif do == "timings":
            probe.start_trials(step)
            probe.time_finally(True)
            self.control.send({"k": "timed", "step": step})
        elif do == "block":
            probe.start_trials(step)
            if probe.trials is not None:
                probe.trials.ask(command)
        elif do == "drop" and probe.trials is not None:
            probe.trials.drop()

    def _beat(self, step: int) -> None:
        """Tell the launcher how it goes: sums since the last beat."""
        probe = self.probe
        loop, collector, rows = probe.loop, probe.collector, probe.loop.timeline.rows
        if not rows:
            return
        self.control.send(
            {
                "k": "beat",
                "step": step,
                "steps": len(rows),
                "wall_us": sum(row[0] for row in rows) // 1000,
                "wait_us": sum(row[1][INPUT] for row in rows) // 1000,
                "samples": loop.samples,
                "gc": collector.beat_count,
                "gc_us": collector.beat_ns // 1000,
                "failure": probe.recorder.failure,
            }
        )
        self.sent_samples += loop.samples
        loop.samples = collector.beat_count = collector.beat_ns = 0
