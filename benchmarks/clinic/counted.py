"""Runs a program that trains on and on, and says how many steps it takes per second.

    python counted.py program.py

Counted are steps of optimizers by torch's own hook, or backward passes where no optimizer steps; from four seconds
after the first one on, for twelve. Then the process ends, in the middle of whatever it does.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

WARM_S, COUNTED_S = 4.0, 12.0
_LEAST = 5
"""Steps, also where they take seconds."""


class Counter:
    """Of one kind of event."""

    def __init__(self) -> None:
        self.first = self.since = 0.0
        self.count = 0

    def add(self, *_: Any) -> None:
        """One more; prints the rate and ends the process once that is known."""
        now = time.perf_counter()
        self.first = self.first or now
        if not self.since:
            self.since = now if now - self.first >= WARM_S else 0.0
            return
        self.count += 1
        if now - self.since >= COUNTED_S and self.count >= _LEAST:
            print(f"\n{self.count / (now - self.since):.4f} steps/s", flush=True)
            os._exit(0)


def main() -> None:
    steps, passes = Counter(), Counter()
    register_optimizer_step_post_hook(steps.add)
    backward = torch.Tensor.backward

    def counted(self: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        backward(self, *args, **kwargs)
        if not steps.first:
            passes.add()

    torch.Tensor.backward = counted  # type: ignore[assignment,method-assign]
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
