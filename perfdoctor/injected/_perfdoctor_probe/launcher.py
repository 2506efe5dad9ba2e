"""What the launcher is told and asks for: heartbeats up, commands down, at a step's boundary."""

import os

from . import channel, control, records
from .engines import ray_worker
from .stop import engine
from .timeline import INPUT

_LONGEST = 300
"""Characters of an error that the launcher is told of."""


class Launcher:
    """The probe's side of the connection; opened when first needed, and once more after a fork."""

    def __init__(self, probe) -> None:
        self.probe = probe
        self.control = None
        self.sent_samples = 0
        """All that heartbeats have told of."""
        self.listen = probe.guarded("control", self._listen)
        self.meets = False
        """Whether it does not hear from all ranks."""
        self.meeting = None
        """Of all ranks in the job's own store, then."""
        self.lost = ""
        """Why there is none, once it is known."""
        self.wish = None
        """Why all are to leave, said before there was one."""
        self.meet = probe.guarded("meeting", self._meet)
        self.may_leave = probe.guarded("meeting", self._may_leave)

    def leave(self) -> None:
        """In a forked child: the connection is the parent's, and closing our copy does not end it."""
        if self.control is not None:
            self.control.close()
            self.control = None
        self.meets, self.meeting, self.lost, self.wish = False, None, "", None
        self.sent_samples = 0

    def _listen(self, step: int, beat: bool) -> None:
        if self.control is None:
            self._connect()
        if beat:
            self._beat(step)
        for command in self.control.commands():
            self.obey(command, step)
        if self.meets or self.control.socket is None:
            self.meet(step, beat)

    def _meet(self, step: int, beat: bool) -> None:
        """Take part in what all ranks agree on; first of all, come there."""
        try:
            if self.meeting is not None:
                self.meeting.look(step)
            elif beat and not self.lost and not self.probe.remedies:
                self._join()
        except RuntimeError as error:
            self._lose(error)

    def _join(self) -> None:
        place = self.probe.communication.place()
        if place.get("world_size", 1) > 1:
            from .meeting import Meeting

            self.meeting = Meeting(place["rank"], place["world_size"], self)
            if self.wish is not None:
                self.meeting.ask(self.wish)

    def _lose(self, error: Exception) -> None:
        """The store's server has gone, or was never there."""
        asked = self.wish is not None if self.meeting is None else self.meeting.why is not None
        self.meeting, self.lost = None, str(error)[:_LONGEST]
        if asked:
            self._cannot()

    def _cannot(self) -> None:
        self.control.send({"k": "cannot", "why": self.lost or "its ranks have no store in common that can be reached"})

    def _may_leave(self, step: int) -> bool:
        """At the step that was agreed on: whether all ranks leave."""
        meeting, self.probe.stop_at = self.meeting, -1
        why = meeting.why
        try:
            leave = meeting.stand(step)
        except RuntimeError as error:
            self._lose(error)
            return False
        if leave:
            self.control.send({"k": "stopping", "step": step, "why": why})
        else:
            self.probe.loop.timeline.skip_own_time()
        return leave

    @property
    def agrees(self) -> bool:
        """Whether the step to leave at is one of all ranks."""
        return self.meeting is not None and self.meeting.round >= 0

    def part(self, step: int) -> None:
        """The job leaves."""
        if records.LEAVE_AT in os.environ and self.control is not None:
            self.control.send({"k": "stopping", "step": step, "why": ""})
        if self.meeting is not None:
            try:
                self.meeting.part()
            except RuntimeError:  # the store went first
                pass

    def hold(self, engine: str) -> None:
        """Wait to be ended together with the engine; returns once the launcher is gone, or where it never was."""
        if self.control is not None:
            self.control.tell({"k": "held", "engine": engine})
            while self.control.wait() is not None:
                pass

    def _connect(self) -> None:
        self.said, recorder = self._hello(), self.probe.recorder
        self.control = control.Control(recorder.run, self.said) if recorder.sender is None else None
        # A socket in a directory that machines share reaches no other machine.
        if channel.VARIABLE in os.environ and (self.control is None or self.control.socket is None):
            self.control = channel.Remote(recorder.run, self.said)
        if engine() == "Ray":
            ray_worker.introduce(self.probe)

    def _hello(self) -> dict:
        environment = os.environ
        # Where it is known, from torch: not every launcher of ranks sets RANK.
        place = self.probe.communication.place() or {
            "rank": int(environment.get("RANK", 0)),
            "world_size": int(environment.get("WORLD_SIZE", 1)),
        }
        here = int(environment.get("LOCAL_WORLD_SIZE", 0))
        return {"k": "hello", "pid": os.getpid(), "here": here, **place}

    def obey(self, command: dict, step: int) -> None:
        """A command, as it comes."""
        probe, do = self.probe, command.get("do")
        if command.pop("all", False) and self.meeting is not None:
            self.meeting.post(command)
        if do == "meet":
            self.meets = True
        elif do == "leave":
            self._ask(command)
        elif do == "stop":
            probe.stop_at = int(command["step"])
            self.control.send({"k": "stopping", "step": max(step, probe.stop_at)})
        elif do == "window":
            probe.windows.ask(str(command["name"]))
        elif do == "turns" and probe.turns is None:
            from .turns import Turns

            probe.turns = Turns(self.control, probe.windows, probe.collector)
        elif do == "timings":
            probe.start_trials(step)
            probe.ending.time_finally(True)
            self.control.send({"k": "timed", "step": step})
        elif do == "block":
            probe.start_trials(step)
            if probe.trials is not None:
                probe.trials.ask(command)
        elif do == "drop" and probe.trials is not None:
            probe.trials.drop()

    def _ask(self, command: dict) -> None:
        """All ranks are to leave together."""
        if self.meeting is None:
            if self.lost or not self.probe.communication.place():
                self._cannot()
            self.meets, self.wish = True, command["why"]
            return
        try:
            self.meeting.ask(command["why"])
        except RuntimeError as error:
            self._lose(error)
            self._cannot()

    def _beat(self, step: int) -> None:
        """Tell the launcher how it goes: sums since the last beat."""
        probe = self.probe
        hello = self._hello()
        if hello != self.said:
            # The process group came after the first step.
            self.said = hello
            self.control.send(hello)
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
                "met": self.meeting is not None and self.meeting.met,
            }
        )
        self.sent_samples += loop.samples
        loop.samples = collector.beat_count = collector.beat_ns = 0
