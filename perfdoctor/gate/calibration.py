"""Two machines' calibration kernels side by side. For plausibility only: no verdict uses them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

ALIKE = 1.2
"""Nearer than this two runs of one machine are too, beside neighbours."""


def compared(before: Mapping[str, float], after: Mapping[str, float]) -> str:
    """`this machine is 1.4x slower at matmul than the baseline's`; "" when one of them was never measured."""
    ratios = {name: after[name] / before[name] for name in before if after.get(name, 0) > 0 and before[name] > 0}
    if not ratios:
        return ""
    slower = [f"{ratio:.1f}x slower at {name}" for name, ratio in ratios.items() if ratio >= ALIKE]
    faster = [f"{1 / ratio:.1f}x faster at {name}" for name, ratio in ratios.items() if 1 / ratio >= ALIKE]
    said = " and ".join([*slower, *faster])
    if not said:
        return (
            f"this machine is as fast as the baseline's at {', '.join(ratios)} (for plausibility: no verdict uses it)"
        )
    return f"this machine is {said} than the baseline's (for plausibility: no verdict uses it)"
