"""Libraries that a new launch of the job loads before all others: another allocator."""

from __future__ import annotations

import ctypes.util
from collections.abc import Callable, Mapping, Sequence

VARIABLE = "LD_PRELOAD"


def find(libraries: Sequence[str], look: Callable[[str], str | None] = ctypes.util.find_library) -> str:
    """The first of these that this machine has, by the name that the loader knows it under; "" for none."""
    return next((found for library in libraries if (found := look(library))), "")


def preloading(library: str, base: Mapping[str, str]) -> dict[str, str]:
    """The variable that loads `library`, in front of what the job preloads anyway."""
    before = base.get(VARIABLE, "")
    return {VARIABLE: f"{library}:{before}" if before else library}
