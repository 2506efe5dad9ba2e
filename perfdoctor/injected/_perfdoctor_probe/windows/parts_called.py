"""Parts of a model that are called one by one without gradients, by a method of its own that is no forward pass: words
written one after another, a search. Nobody times those otherwise."""

import sys
import time

import torch

from ..changes import unseen
from ..hooks.held_out import tensors

_MANY = 8
"""Calls from which on the line is looked up that asks for them."""
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
        given = next(tensors(arguments), None)
        self.calls += 1
        self.spent_ns += took_ns
        self.rows += given.shape[0] if given is not None and given.dim() > 1 else 1
        if self.calls == _MANY:
            self.at = self._asked_at()

    def _asked_at(self) -> int:
        """The line outside of modules."""
        frame = sys._getframe(3)
        while frame is not None:
            own = frame.f_locals.get("self")
            if not self.sites.is_library(frame.f_code.co_filename) and not isinstance(own, torch.nn.Module):
                return self.sites.at(frame.f_code, frame.f_lineno)
            frame = frame.f_back
        return -1

    def summary(self) -> dict:
        """Empty where there were few."""
        if self.calls < _MANY:
            return {}
        return {"parts_called": {"calls": self.calls, "us": self.spent_ns // 1000, "rows": self.rows, "site": self.at}}
