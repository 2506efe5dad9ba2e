"""Who profiles: torch has one profiler per process, and the job's own comes before our operator window."""

from _thread import get_ident

import torch


class Profilers:
    """Knows whether the job has ever prepared or started torch's profiler itself."""

    def __init__(self, give_way) -> None:
        self.give_way = give_way
        self.home = get_ident()
        self.starting_ours = False
        self.used_by_job = False

    def job_has_one(self) -> bool:
        """Once it has, it may be between two of its windows, where nothing shows it."""
        return self.used_by_job or torch.autograd._profiler_enabled()

    def starts(self) -> None:
        """A profiler is about to be prepared or enabled."""
        if not self.starting_ours:
            self.used_by_job = True
            self.give_way()

    def start_ours(self, profile, quiet) -> None:
        """Enter `profile` as ours, with `quiet` around what logs."""
        self.starting_ours = True
        try:
            if quiet.level is None:
                with quiet:
                    profile.__enter__()
            else:
                # The first preparation in a process gives the log level its initial value.
                profile._prepare_trace()
                with quiet:
                    profile._start_trace()
        finally:
            self.starting_ours = False
