"""The probe's state in a process that has imported torch, and what happens at each step boundary."""

import atexit
import functools
import os
import sys
import time
import weakref
from _thread import get_ident

from . import channel, control, distant, procfs, records, settings, sites
from .ending import Ending
from .facts import SETTLED, Facts
from .guard import Guard
from .held_back import HeldBack
from .hooks import collector, concurrency, patches, profilers
from .hooks.anomaly import Anomaly
from .hooks.calls import Calls
from .hooks.communication import Communication
from .hooks.compilations import Compilations
from .hooks.decoding import Decoding
from .hooks.device_clock import DeviceClock
from .hooks.doubles import Doubles
from .hooks.evaluation import Evaluation
from .hooks.fetches import Fetches
from .hooks.held_out import HeldOut
from .hooks.jobs_profiler import JobsProfiler
from .hooks.loading import Loading
from .hooks.loggers import Loggers
from .hooks.modes import Modes
from .hooks.processes import Processes
from .imports import IMPORTS
from .launcher import Launcher
from .loop import Loop
from .phases import Phases
from .recorder import columns
from .stop import StopJob, engine
from .timeline import GC, INPUT, Timeline
from .tracker import Tracker
from .windows import schedule
from .windows.made import made
from .windows.recurring import Recurring
from .windows.sampling import Sampling

_FLUSH_NS = 500_000_000
"""Between samples and writes, once the first few steps are on disk."""
_EARLY_STEPS = 64


class Probe:
    """One per process."""

    def __init__(self, recorder, start_ns: int) -> None:
        self.recorder = recorder
        self.start_ns = start_ns
        guarded = self.guarded = Guard(self.note_fault)
        self.fault = guarded.fault
        self.sites = sites.Sites(recorder)
        self.concurrency = concurrency.Concurrency(recorder, self.sites)
        self.loop = Loop(recorder, self.boundary, self.early_step, self.sites, self.concurrency, guarded)
        self.collector = collector.Collector(recorder, self.loop, self.sites, guarded)
        self.calls = Calls(recorder, self.loop, self.sites, guarded)
        self.processes = Processes(self.calls, self.loop, self.sites, guarded)
        self.communication = Communication(recorder, self.loop, self.calls, self.sites, guarded)
        self.loggers = Loggers(self.calls)
        self.look_for_loggers = guarded("logging", self.loggers.look)
        self.anomaly = Anomaly(self.sites, guarded)
        self.compilations = Compilations(recorder, self.sites)
        self.flush_compilations = guarded("compilations", self.compilations.flush)
        self.loading = Loading(recorder, self.loop, self.sites, guarded)
        self.fetches = Fetches(self.loading, guarded, self.collector.pauses)
        self.held_out = HeldOut(recorder, self.sites)
        self.evaluation = Evaluation(
            recorder, self.sites, self.loop, self.loading, self.held_out, Decoding(recorder, self.sites)
        )
        self.evaluation.on_batch = guarded("evaluation window", self._evaluated)
        self.evaluated_again = guarded("evaluation window", self._evaluated_again)
        self.device_clock = DeviceClock(recorder, self.loop, guarded)
        plan = [name for name in os.environ.get("PERFDOCTOR_WINDOWS", "").split(",") if name]
        self.windows = schedule.Windows(recorder, functools.partial(made, probe=self), self.fault, plan)
        self.modes = Modes(recorder, self.loop, self.windows, guarded)
        self.look_for_modes = guarded("modes", self.modes.at_tick)
        self.profilers = profilers.Profilers(guarded("profilers", self.profiler_starts))
        self.jobs_profiler = JobsProfiler(recorder, self.loop, self.sites, self.profilers)
        self.held_back = HeldBack()
        self.sampling = self.fetches.sampling = Sampling(self)
        self.launcher = Launcher(self)
        # Each with a switch of its own: a boundary is reached from inside other hooks.
        self.tick = guarded("tick", self._tick)
        self.look_closer = guarded("windows", self._look_closer)
        self.tracker = Tracker(recorder, os.environ.get("PERFDOCTOR_LOG_TO", ""))
        self.look_for_run = guarded("tracker", self.tracker.look)
        self.facts = Facts(self)
        self.write_settings = guarded("settings", self.facts.write)
        self.write_sample = guarded("sample", self.sample)
        self.write_rows = guarded("flush", self.flush)
        self.recurring = Recurring(recorder, self.loop, self.loading, self.windows)
        self.look_for_cycle = guarded("cycles", self.recurring.look)
        self.phases = Phases(recorder, self.loop, self.sites, self.loading, self._phase_began)
        self.look_for_phases = guarded("phases", self.phases.look)
        self.take_turn = guarded("turns", self._take_turn)
        self.concurrency.is_watched = lambda: self.windows.watches
        self.concurrency.on_other_thread = guarded("windows", self.windows.leave_behind)
        self.loop.updates.window_is_open = lambda: self.windows.open is not None
        self.loop.on_kind = guarded("windows", self._kind_changed)
        self.growth = None
        """What the job keeps, census by census; from the first one on."""
        self.take_census = guarded("growth", self._take_census)
        self.time_threads = guarded("thread microbenchmark", self.windows.time_threads)
        self.time_requests = guarded("request microbenchmark", self._time_requests)
        self.ending = Ending(self, guarded)
        self.trials = None
        """The remedies' side, from when the first one is asked for."""
        self.retired = False
        """Whether our hooks are gone, and only remedies are left."""
        self.remedies = [name for name in os.environ.get("PERFDOCTOR_APPLY", "").split(",") if name]
        self.start_trials = guarded("trials", self._start_trials)
        self.try_remedies = guarded("trials", self._try_remedies)
        self.concurrency.make_microbenchmark = guarded("request microbenchmark", self._make_request_microbenchmark)
        self.doubles = Doubles(self.sites)
        self.reset()

    def reset(self) -> None:
        """State of this process alone: at install, and in a forked child."""
        self.next_tick_ns = 0
        self.next_flush_ns = 0
        self.stop_at = int(os.environ.get(records.LEAVE_AT, -1))
        self.own_ns = 0
        self.optimizer = None
        self.turns = None
        self.epoch_starts = None
        """The window of what epochs begin with, once there was one."""
        self.first_evaluated: "int | None" = None
        """The step of the first evaluation."""

    def before_fork(self) -> None:
        """A window must not be open in a child: nobody would close it there."""
        self.windows.abandon(self.loop.timeline.step, "the loop starts processes in every step", again=True)

    def after_fork(self) -> None:
        """In a forked child: nothing that was measured so far is ours."""
        self.launcher.leave()
        self.sites.ids.clear()
        for part in (
            self.loop,
            self.concurrency,
            self.collector,
            self.calls,
            self.processes,
            self.loading,
            self.fetches,
            self.windows,
            self.recurring,
            self.phases,
            self.modes,
            self,
            self.facts,
            self.ending,
            self.anomaly,
            self.jobs_profiler,
            self.compilations,
            self.evaluation,
            self.held_out,
            self.device_clock,
            self.communication,
            self.sampling,
        ):
            part.reset()
        self.growth = None
        self.tracker.known = ""
        if self.remedies:
            self.recorder.disable()
            return
        self.recorder.record("torch", **settings.imported())

    def note_fault(self, hook: str, error: Exception) -> None:
        """A hook was switched off."""
        self.loop.quick = 0
        if self.ending.is_exit or sys.is_finalizing():
            return
        self.recorder.record("fault", hook=hook, error=f"{type(error).__name__}: {error}"[:300])
        self.recorder.flush()  # whatever else is broken
        self.loop.timeline.clear()

    # -- at a step boundary -------------------------------------------------------------------------------

    def boundary(self, line: Timeline) -> None:
        """A step has just ended, and something may be due."""
        if self.turns is not None and line.rows:
            wall, spent, _ = line.rows[-1]
            self.turns.count(wall, spent[INPUT], spent[GC])
        if self.windows.busy and (self.phases.is_judged or self.windows.open is not None):
            self.look_closer(line)
        if self.phases.attentive:
            self.look_for_phases(line.step, line.boundary_ns)
        trials = self.trials
        if trials is not None and trials.busy:
            self.try_remedies(line)
        if line.boundary_ns >= self.next_tick_ns or line.step <= _EARLY_STEPS:
            self.tick(line)
        if self.turns is not None and self.turns.is_over:
            self.take_turn(line)
        stopping = self.stop_at >= 0
        due = stopping and line.step >= self.stop_at
        if due and (not self.launcher.agrees or self.launcher.may_leave(line.step)):
            self.ending.leave(discarded=True)
            self.launcher.part(line.step)
            above = engine()
            if above:
                self.ending.record_exit()
                self.launcher.hold(above)
            # Threading prints what ends another thread than the main one, unless it is a plain `SystemExit`.
            raise StopJob(0) if get_ident() == self.profilers.home else SystemExit(0)
        asked = self.turns is not None or (trials is not None and trials.busy)
        attentive = stopping or asked or self.windows.busy or self.phases.attentive or line.step < _EARLY_STEPS
        self.loop.due_ns = 0 if attentive else self.next_tick_ns

    def _kind_changed(self) -> None:
        self.windows.replan(self.loop.timeline.step)
        self.loop.due_ns = 0

    def _phase_began(self, step: int) -> None:
        """Another one is judged from here on: its windows, its model and its optimizer are looked at as the first's."""
        loop = self.loop
        self.recurring.reset()
        self.windows.cycle = 1
        self.windows.replan(step)
        loop.due_ns = loop.quick = loop.optimizer_steps = 0
        self.optimizer = None
        self.facts.without_optimizer = True

    def early_step(self, optimizer, number: int) -> None:
        """The first few optimizer steps, `number` counting from 1."""
        self.discovery.at_step(number)
        self.calls.checkpoints.updates(sys._getframe(1))
        self.held_out.optimizer_stepped(optimizer)
        self.watch_checkpoints()
        self.watch_processes()
        self.communication.watch_later()
        if self.optimizer is None:
            self.optimizer = weakref.ref(optimizer)

    def _look_closer(self, line: Timeline) -> None:
        line.settle_cpu()
        if self.windows.at_boundary(line.step, line.rows[-1][0]):
            line.skip_own_time()

    def _tick(self, line: Timeline) -> None:
        self.sampling.pause()
        line.settle_cpu()
        now, step = line.boundary_ns, line.step
        self.next_tick_ns = now + control.POLL_NS
        IMPORTS.stop()
        self.look_for_loggers()
        if self.facts.is_late:
            self.write_settings()
        if step == SETTLED:
            self.write_settings()
            if self.remedies:
                self.start_trials(step)
        # On disk after 1, 2, 4, 8, ... steps, then twice a second: a job may be killed at any time.
        due = now >= self.next_flush_ns or (step <= _EARLY_STEPS and step & (step - 1) == 0)
        self.launcher.listen(step, due)
        if due:
            self.look_for_run()
            self.next_flush_ns = now + _FLUSH_NS
            self.write_sample()
            self.write_rows()
        line.skip_own_time()
        self.own_ns += line.boundary_ns - now
        if self.trials is None:
            self.look_for_phases(step, now)
            self.look_for_modes(step, self.discovery.compiled)
        if due and self.trials is None:
            self.time_threads(step)
            self.time_requests(step)
            self.take_census(step)
            line.skip_own_time()
        self.sampling.go_on(step)

    def _take_census(self, step: int) -> None:
        """What grows has the lines of a step timed again. The module is loaded when first needed."""
        if "lines" not in self.windows.planned or self.windows.open is not None:
            return
        if self.growth is None:
            from .windows.growth import Growth

            self.growth = Growth(self.recorder, self.sites, loading=self.loading)
        if step < self.growth.due:
            return
        began = self.windows.own.begin()
        grows = self.growth.take(step, self.phases.first)
        if grows and "later" not in self.windows.plan:
            self.windows.ask("later")
        if (grows or self.growth.is_late) and "subnormals" not in self.windows.plan:
            self.windows.ask("subnormals")
        if self.windows.plan:
            self.windows.last_step = step  # what the census has pushed out of the caches is not this step's cost
        self.windows.own.end(began)

    def _evaluated(self, passes: int) -> None:
        """Once, the lines of what follows such a forward pass are timed: not after the very first, which warms up."""
        windows, step = self.windows, self.loop.timeline.step
        if self.first_evaluated is None:
            self.first_evaluated = step
        warm = step > 0 and (passes > 1 or step > self.first_evaluated)
        if warm and windows.open is None and "lines" in windows.planned and self.trials is None:
            windows.open_within("evaluation", step)
            self.loop.due_ns = 0
            self.evaluation.on_batch = self.evaluated_again

    def _evaluated_again(self, passes: int) -> None:
        """The next such pass, where the step has not ended before it."""
        self.evaluation.on_batch = None
        if self.windows.open is not None and self.windows.open.name == "evaluation":
            self.windows.open.abandon()

    def _start_trials(self, step: int) -> None:
        """The steps from here on are not the job's alone any more. The module is loaded when first needed."""
        if self.trials is None:
            from .remedies.trial import Trials

            self.modes.stop()
            self.trials = Trials(self)
            self.recorder.record("trials", step=step, t=time.perf_counter_ns())
            if self.remedies:
                self.trials.keep(self.remedies, step)
                self.recorder.disable()  # nobody judges a job that is only run
                self.retire()

    def retire(self) -> None:
        """Take our hooks out of the job, but for what the remedies in place need."""
        # Not out of a compiled job: Dynamo has traced some of them.
        if not self.discovery.compiled:
            kept = {part for remedy in self.trials.kept for part in remedy.needs}
            self.changes.take_back(kept)
            self.retired = True

    def _take_turn(self, line: Timeline) -> None:
        line.settle_cpu()
        if not self.turns.hold(line.step, self.launcher.obey):
            self.turns = None
            self.stop_at = 0  # told to leave, or left alone: it ran for the launcher only
        line.skip_own_time()

    def _try_remedies(self, line: Timeline) -> None:
        if self.trials.at_boundary(line.step, line.rows[-1][0] // 1000):
            line.skip_own_time()
        self.trials.work()

    # -- records ------------------------------------------------------------------------------------------

    def sample(self) -> None:
        """Queue the counters of this process."""
        loop = self.loop
        self.recorder.record(
            "sample",
            t=time.perf_counter_ns(),
            step=loop.timeline.step,
            **self.windows.own.without(procfs.counters()),
            **settings.cuda_counters(),
            **self.held_back.counters(),
            events=loop.timeline.events,
            own_us=(self.own_ns + self.device_clock.own_ns + self.communication.own_ns) // 1000,
            window_us=self.windows.own.spent_ns // 1000,
            import_us=IMPORTS.ns // 1000,
        )

    def flush(self) -> None:
        """Queue all rows and write everything to the file."""
        line = self.loop.timeline
        rows = line.taken_rows()
        if rows:
            numbers = {"first": line.step - len(rows), "t": line.boundary_ns}
            ours = {"marked": self.windows.marked} if self.windows.marked else {}
            self.recorder.record("steps", **numbers, **ours, **columns(records.STEP_COLUMNS, rows))
            marked = set(self.windows.marked)
            self.windows.marked.clear()
            if self.trials is None:
                self.look_for_cycle(line, rows, marked)
        for site, (count, ns) in self.loop.eval_with_grad.items():
            self.recorder.record("eval_with_grad", step=line.step, site=site, count=count, us=ns // 1000)
        self.loop.eval_with_grad.clear()
        self.loading.flush()
        self.fetches.flush()
        self.collector.flush()
        self.calls.flush()
        self.communication.flush(self.optimizer() if self.optimizer is not None else None)
        if self.discovery.compiled:
            self.flush_compilations()
        self.evaluation.flush()
        self.concurrency.flush(line.step)
        self.device_clock.flush()
        self.sampling.flush()
        self.recorder.flush()

    def trained(self, module, arguments: tuple) -> None:
        """A forward pass of a model that trains has just ended."""
        final = self.windows.final_microbenchmark
        if final is not None:
            final.passes.consider(module, *arguments)

    def _make_request_microbenchmark(self, copies: int):
        """None where a forward cannot be recorded now."""
        from .windows import layers

        if self.windows.open is not None or layers.obstacle(self.discovery.compiled):
            return None
        from .microbenchmarks.requests import RequestMicrobenchmark

        step = self.loop.timeline.step
        self.windows.marked += [step, step + 1]
        return RequestMicrobenchmark(copies)

    def _time_requests(self, step: int) -> None:
        self.windows.take_round("batching", self.concurrency.microbenchmark, step)

    def compiling(self) -> None:
        """torch.compile is about to be called: it compiles nothing inside a dispatch mode, and would trace hooks."""
        self.facts.compiles(self.loop.timeline.step, self.sites.place(2))
        window = self.windows.open
        if window is not None and window.name == "sites":
            self.windows.abandon(self.loop.timeline.step, "the job uses torch.compile", again=False)
        elif window is not None and window.name == "ops":
            window.forget_layers("the job uses torch.compile, which would trace the hooks")
        self.forget_makers()
        self.communication.leave()
        self.loggers.forget()
        self.make_hooks_traceable()
        self.discovery.compiling()

    def profiler_starts(self) -> None:
        """The job's own profiler is about to start: ours makes room."""
        window = self.windows.open
        if window is not None and window.name in ("ops", "counters"):
            self.windows.abandon(self.loop.timeline.step, "the job runs a profiler of its own", again=False)


def install(recorder, after_fork: list, start_ns: int) -> None:
    """Called once, right after the job's own `import torch`."""
    began = time.perf_counter_ns()
    channel.serve(recorder)
    distant.settle(recorder.run)
    probe = Probe(recorder, 0)
    patches.install(probe)
    recorder.record("torch", **settings.imported())
    recorder.flush()  # a job that hangs from here on has imported torch
    atexit.register(probe.ending.at_exit)
    after_fork.append(probe.after_fork)
    os.register_at_fork(before=probe.guarded("fork", probe.before_fork))
    probe.start_ns = start_ns + time.perf_counter_ns() - began
