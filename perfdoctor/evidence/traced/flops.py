"""Floating-point operations of a product, from the operator's name and the shapes of its inputs."""

from __future__ import annotations

import functools
import math
import re

_SHAPE = re.compile(r"\[([\d, ]*)\]")


@functools.lru_cache(maxsize=4096)
def flops(operator: str, shapes: str) -> float:
    """Two for each multiply and add; 0 for what is no product, and for shapes that are not known."""
    sizes = [tuple(int(size) for size in text.split(",") if size.strip()) for text in _SHAPE.findall(shapes)]
    name = operator.removeprefix("aten::")
    if name in ("mm", "bmm") and len(sizes) >= 2 and sizes[0]:
        return 2.0 * math.prod(sizes[0]) * sizes[1][-1]
    if name in ("addmm", "baddbmm", "_scaled_mm") and len(sizes) >= 3 and sizes[1]:
        return 2.0 * math.prod(sizes[1]) * sizes[2][-1]
    return 0.0
