"""Modes for finding errors that were left on."""

import torch

from .base import Remedy, UnsuitableError


class NoAnomalyDetection(Remedy):
    """Anomaly detection of autograd stays off although the job goes on switching it on (`detect_anomaly()` does, at
    each entry). What the job wishes meanwhile it is told, and holds afterwards."""

    names = ("set_anomaly_enabled", "is_anomaly_enabled", "is_anomaly_check_nan_enabled")

    def apply(self) -> None:
        self.wish = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
        if not self.wish[0] and self.probe.anomaly.site < 0:
            raise UnsuitableError("already set")
        self.originals = {name: getattr(torch, name) for name in self.names}

        def note(mode, check_nan=True) -> None:
            self.wish = mode, check_nan

        for name, stand_in in zip(self.names, (note, lambda: self.wish[0], lambda: self.wish[1])):
            setattr(torch, name, stand_in)
        self.originals["set_anomaly_enabled"](False, self.wish[1])

    def withdraw(self) -> None:
        for name, original in getattr(self, "originals", {}).items():
            setattr(torch, name, original)
        if hasattr(self, "originals"):
            torch.set_anomaly_enabled(*self.wish)
