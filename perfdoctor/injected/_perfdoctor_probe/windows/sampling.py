"""When stacks are sampled: in jobs of `perfdoctor profile`, once all windows are closed, and in their data-loader
workers from the start. `sampler` is loaded when first needed."""

import os

_FIRST_STEP = 5
"""Before which nothing is sampled, windows or none: lazy initialisation is no steady step."""


class Sampling:
    """The sampler of this process, where there is one. All methods are called on the thread that has the recorder."""

    def __init__(self, probe) -> None:
        self.probe = probe
        self.asked = "PERFDOCTOR_SAMPLE" in os.environ
        self.sampler = None
        self.begin = probe.guarded("sampler", self._begin)

    def reset(self) -> None:
        """In a forked child, which has no thread of ours."""
        self.end()
        self.sampler = None

    def _begin(self, worker: bool = False) -> None:
        """From now on; `worker` is a process that makes batches."""
        if self.asked:
            from .sampler import Sampler

            probe = self.probe
            self.sampler = Sampler(probe.recorder, probe.sites, probe.loop, probe.windows, probe.fault)
            self.sampler.start(worker)

    def pause(self) -> None:
        """What the training thread does now is ours."""
        if self.sampler is not None:
            self.sampler.away = True

    def go_on(self, step: int) -> None:
        """It is the job's again; or the time has come to begin."""
        if self.sampler is not None:
            self.sampler.away = False
        elif self.asked and step >= _FIRST_STEP and not self.probe.windows.busy:
            self.begin()

    def flush(self) -> None:
        """Queue what was sampled."""
        if self.sampler is not None:
            self.sampler.flush()

    def end(self) -> None:
        """No more samples."""
        if self.sampler is not None:
            self.sampler.end()
