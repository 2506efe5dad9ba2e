"""cuDNN confined to its deterministic algorithms."""

from __future__ import annotations

from perfdoctor.api.findings import Finding, Fix

from .case import Case

_DETERMINISTIC_COSTS = (0.05, 0.2)
"""Of convolution time: reports of 10 to 20 % of training (ADD-GCN#13, lerobot#3102)."""


def deterministic(case: Case) -> Finding | None:
    """By the device's time in convolutions."""
    if not case.cudnn.deterministic:
        return None
    return case.finding(
        "deterministic",
        "convolutions take {cost_ms} per step ({cost_share}) with cuDNN's deterministic algorithms only",
        "`torch.backends.cudnn.deterministic` is True",
        case.ms(case.by_cudnn),
        _DETERMINISTIC_COSTS,
        Fix(
            text="Switch it off where runs need not repeat each other to the bit.",
            code="torch.backends.cudnn.deterministic = False",
            risk="Two runs with one seed no longer agree to the last digit.",
        ),
        "the device's time in convolutions; 5 to 20 % was reported, not measured in this run",
        note=True,
    )
