"""What deterministic algorithms cost: the job's own passes with them, without, and without the filling of new memory.

Torch fills what `torch.empty` gives under them, so that whoever reads it too early reads the same each time.
"""

import torch
import torch.utils.deterministic as deterministic

from .passes import always


def timings(passes) -> dict:
    """Of a `PassMicrobenchmark`; nothing where they are off."""
    if not torch.are_deterministic_algorithms_enabled():
        return {}
    warn_only, fills = torch.is_deterministic_algorithms_warn_only_enabled(), deterministic.fill_uninitialized_memory

    def switch(on: bool) -> None:
        torch._C._set_deterministic_algorithms(on, warn_only=warn_only)

    def fill(on: bool) -> None:
        deterministic.fill_uninitialized_memory = on

    ways = {"off": always(lambda: switch(False), lambda: switch(True))}
    if fills:
        ways["unfilled"] = always(lambda: fill(False), lambda: fill(True))
    return {"deterministic": passes.without(ways)}
