"""Parts of a model that are called one by one without gradients, by a method of its own that is no forward pass: words
written one after another, a search. Nobody times those otherwise."""

import contextlib
import sys
import time

import torch

from ..changes import unseen
from ..hooks.evaluation import MANY, asked_at, samples_given

_clock = time.perf_counter_ns


class PartsCalled:
    """In one step; the outermost of such calls."""

    def __init__(self, sites, loop) -> None:
        self.sites = sites
        self.loop = loop
        self.calls = self.spent_ns = self.rows = 0
        self.at = -1
        self.inside = False

    def open(self) -> None:
        """From here on. What a root class has in place of `nn.Module.__call__` calls that too."""
        self.original = original = torch.nn.Module.__call__

        def __call__(module, *args, **kwargs):
            if self.inside or self.loop.inside_forward or module.training or torch.is_grad_enabled():
                return original(module, *args, **kwargs)
            self.inside = True
            began = _clock()
            try:
                return original(module, *args, **kwargs)
            finally:
                self.inside = False
                self._ended(_clock() - began, (args, kwargs))

        torch.nn.Module.__call__ = self.stand_in = unseen(__call__)

    def close(self) -> None:
        """No more."""
        if torch.nn.Module.__call__ is self.stand_in:
            torch.nn.Module.__call__ = self.original

    def _ended(self, took_ns: int, arguments: tuple) -> None:
        self.calls += 1
        self.spent_ns += took_ns
        with contextlib.suppress(Exception):  # a tensor of an exotic kind has no rows
            self.rows += samples_given(arguments)
            if self.calls == MANY:
                self.at = asked_at(self.sites, sys._getframe(2))

    def summary(self) -> dict:
        """Empty where there were few."""
        if self.calls < MANY:
            return {}
        return {"parts_called": {"calls": self.calls, "us": self.spent_ns // 1000, "rows": self.rows, "site": self.at}}
