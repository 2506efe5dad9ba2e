"""Numbers as they travel to the page."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def shortened(value: float) -> float:
    """With four digits: what a screen can show of it, in as few characters as that takes."""
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() else short
