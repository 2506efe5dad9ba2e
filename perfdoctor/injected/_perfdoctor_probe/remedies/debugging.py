"""Modes for finding errors that were left on."""

import torch

from .base import Remedy, UnsuitableError


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
