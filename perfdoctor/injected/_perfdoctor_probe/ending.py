"""The end of a process, or of what is watched of it: what is left is written, and what needs no more steps is timed."""

import gc
import sys
import time

import torch

from . import failures
from .compiler import looked_at
from .stop import StopJob
from .timeline import CHECKPOINT, LOGGING


class Ending:
    """What is done once, after the last step of a probe's process."""

    def __init__(self, probe, guarded) -> None:
        self.probe = probe
        self.time_finally = guarded("final microbenchmark", self._time_finally)
        self.ask_again = guarded("samples", self._ask_again)
        self.note_plan = guarded("planned", self._note_plan)
        self.note_given = guarded("origins", self._note_given)
        self.is_exit = self.failed = False
        """Whether the process is ending: what hooks meet from here on may be half taken down; and whether
        by an exception."""
        self.reset()

    def reset(self) -> None:
        """In a forked child."""
        self.own_ns = 0
        """Of what was timed after the last step."""

    def leave(self, discarded: bool) -> None:
        """Write what is left: before we stop the job, which is `discarded` then, or at its own end."""
        probe = self.probe
        probe.windows.abandon(probe.loop.timeline.step, "the job ended first", again=False)
        if probe.trials is not None and not probe.remedies:
            probe.trials.abandon()
        if discarded:
            self.note_plan()
        self.note_given()
        probe.write_sample()
        probe.sampling.end()
        # Takes 10 ms per 100,000 objects, so only here, after the last step.
        probe.recorder.record("end", tracked_objects=len(gc.get_objects()), compiled=looked_at())
        probe.write_rows()
        self.time_finally(discarded)

    def record_exit(self) -> None:
        """The last record: when, and what came after the last step."""
        probe = self.probe
        spent = probe.loop.timeline.spent
        after = {"checkpoint_us": spent[CHECKPOINT] // 1000, "logging_us": spent[LOGGING] // 1000}
        probe.recorder.record("exit", t=time.perf_counter_ns(), **after, own_us=self.own_ns // 1000)
        probe.recorder.flush()

    def at_exit(self) -> None:
        """The ordinary way out. Nothing depends on it: a killed job has lost half a second of rows at most."""
        probe = self.probe
        self.is_exit = True
        try:
            # The interpreter keeps what nobody caught, whether or not it is interactive.
            error = getattr(sys, "last_value", None)
            if error is not None and not isinstance(error, StopJob):
                self.failed = True
                probe.recorder.record("failure", error=failures.told(error))
            if not probe.retired and (probe.loop.timeline.step or probe.recorder.pending):
                self.leave(discarded=False)
                self.record_exit()
        except Exception:
            pass

    def _time_finally(self, discarded: bool) -> None:
        # At its own end the job has done all that it does: what its modules and data sets change is of use to nobody.
        may_call = discarded or not (self.failed or self.probe.communication.had_peers)
        # Modules of the job that are called now are in no step.
        probe, loop = self.probe, self.probe.loop
        inside, loop.inside_forward = loop.inside_forward, True
        began = time.perf_counter_ns()
        try:
            probe.windows.time_finally(may_call)
            if may_call:
                self.ask_again()
            # Of a job that is stopped one that is on hears of it: ending it may take longer than the job is given. One
            # that is off may be about to start, and would meet ours: at the exit it has ended.
            if self.is_exit or (discarded and torch.autograd._profiler_enabled()):
                probe.jobs_profiler.time_finally()
        finally:
            loop.inside_forward = inside
            self.own_ns += time.perf_counter_ns() - began

    def _ask_again(self) -> None:
        """The module is loaded when needed."""
        from .microbenchmarks.samples import asked_again

        for record in asked_again(self.probe.loading):
            self.probe.recorder.record("samples", **record)
        self.probe.recorder.flush()

    def _note_given(self) -> None:
        """Where the job's source decides what its loaders are given."""
        for record in self.probe.loading.given():
            self.probe.recorder.record("given", **record)

    def _note_plan(self) -> None:
        """How long the job would have been that we are about to end, from inside its loop, and what it does then."""
        from .windows.afterwards import trains_afterwards
        from .windows.planned import planned

        probe = self.probe
        step = probe.loop.timeline.step
        plan = planned(probe.sites, step, probe.loading, probe.phases.first)
        if plan is not None:
            probe.recorder.record("planned", step=step, **plan)
        later = trains_afterwards(probe.sites)
        if later >= 0:
            probe.recorder.record("afterwards", step=step, site=later)
