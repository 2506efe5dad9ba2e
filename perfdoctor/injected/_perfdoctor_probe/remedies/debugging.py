"""Modes for finding errors that were left on."""

import torch
import torch.utils.deterministic as deterministic

from .base import Remedy, Switch, UnsuitableError


class NoAnomalyDetection(Remedy):
    """Anomaly detection of autograd stays off although the job goes on switching it on (`detect_anomaly()` does, at
    each entry). What the job wishes meanwhile it is told, and holds afterwards."""

    def apply(self) -> None:
        self.wish = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
        if not self.wish[0] and self.probe.anomaly.site < 0:
            raise UnsuitableError("already set")
        torch.set_anomaly_enabled(False, self.wish[1])

        def note(mode, check_nan=True) -> None:
            self.wish = mode, check_nan

        self.changes.put(torch, "set_anomaly_enabled", note)
        self.changes.put(torch, "is_anomaly_enabled", lambda: self.wish[0])
        self.changes.put(torch, "is_anomaly_check_nan_enabled", lambda: self.wish[1])

    def withdraw(self) -> None:
        super().withdraw()
        if hasattr(self, "wish"):
            torch.set_anomaly_enabled(*self.wish)


class NoProfiler(Remedy):
    """A profiler of the job's own hears of no operator of the training thread. It stays on, and what it writes lacks
    these steps."""

    def apply(self) -> None:
        if not torch.autograd._profiler_enabled():
            raise UnsuitableError("no profiler is on")
        torch._C._autograd._enable_record_function(False)
        self.applied = True

    def withdraw(self) -> None:
        if getattr(self, "applied", False):
            torch._C._autograd._enable_record_function(True)


class NoDeterministicAlgorithms(Switch):
    """Torch may use any algorithm."""

    wanted = False

    def read(self) -> bool:
        return torch.are_deterministic_algorithms_enabled()

    def set(self, value: bool) -> None:
        torch._C._set_deterministic_algorithms(value, warn_only=torch.is_deterministic_algorithms_warn_only_enabled())


class NoFill(Switch):
    """Memory that torch allocates is left as it comes, under deterministic algorithms too."""

    wanted = False

    def read(self) -> bool:
        return torch.are_deterministic_algorithms_enabled() and deterministic.fill_uninitialized_memory

    def set(self, value: bool) -> None:
        deterministic.fill_uninitialized_memory = value


class NoValidation(Switch):
    """Distributions test nothing of what they are given, but for those that were asked to one by one."""

    wanted = False

    def read(self) -> bool:
        return torch.distributions.Distribution._validate_args

    def set(self, value: bool) -> None:
        torch.distributions.Distribution.set_default_validate_args(value)
