"""Modes for finding errors that were left on."""

import torch

from .base import Switch


class NoAnomalyDetection(Switch):
    """`torch.autograd.set_detect_anomaly(False)`."""

    def read(self) -> tuple:
        return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()

    def set(self, value: tuple) -> None:
        torch.set_anomaly_enabled(*value)

    def wanted(self) -> tuple:
        return False, torch.is_anomaly_check_nan_enabled()
