"""The job's own profiler: from which step to which it is on, what it records, and whether it ends by itself."""

from torch.profiler import ProfilerAction

_OPTIONS = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
_EMITTERS = ("emit_nvtx", "emit_itt")
"""They tell another profiler of each operator, and record nothing themselves."""
_FAR = 1_000_000_000
"""A step at which a schedule of the job's has ended, if it ever does ..."""
_CYCLE = 1000
"""... and so many after it, in which one that does not end records again."""


class JobsProfiler:
    """What is known of it; each start and stop is recorded."""

    def __init__(self, recorder, loop, sites, profilers) -> None:
        self.recorder = recorder
        self.loop = loop
        self.sites = sites
        self.profilers = profilers
        self.reset()

    def reset(self) -> None:
        """In a forked child, where no profiler is on."""
        self.on = self.ends = self.emits = False
        self.options: "dict[str, bool]" = {}
        """Of the last that was on; empty before the first."""
        self.microbenchmark_due = False
        """Whether what it costs an operator is still to be timed."""

    def scheduled(self, profile) -> None:
        """One of `torch.profiler` is about to start: only this one has a schedule."""
        schedule = getattr(profile, "schedule", None)
        # Torch's own schedules are pure functions; nobody else's is called.
        known = getattr(schedule, "__module__", "") == "torch.profiler.profiler"
        self.ends = known and all(schedule(_FAR + i) is ProfilerAction.NONE for i in range(_CYCLE))

    def started(self, profile) -> None:
        """One is on from here."""
        if self.profilers.starting_ours or not getattr(profile, "enabled", True):
            return
        self.on = True
        kind = type(profile).__name__
        self.emits = kind in _EMITTERS
        self.options = {name: bool(getattr(profile, name, False)) for name in _OPTIONS}
        self.microbenchmark_due = not self.ends
        options = [kind] * self.emits + [name for name, wanted in self.options.items() if wanted]
        self._record(on=True, site=self.sites.here(2), options=options, ends=self.ends)
        self.ends = False

    def stopped(self) -> None:
        """Whichever was on is not any more."""
        if self.on:
            self.on = False
            self._record(on=False)

    def _record(self, **facts) -> None:
        self.recorder.record("profiler", step=self.loop.timeline.step, **facts)

    def time_finally(self) -> None:
        """After the last step: what an operator takes longer with it. The module is loaded when first needed."""
        # One of ours would not stand in for an emitter.
        if self.microbenchmark_due and (self.on or not self.emits):
            from ..microbenchmarks import profiling

            found = profiling.timings(self.profilers, self.options)
            if found:
                self.microbenchmark_due = False
                self.recorder.record("profiler_timing", **found)
                self.recorder.flush()
