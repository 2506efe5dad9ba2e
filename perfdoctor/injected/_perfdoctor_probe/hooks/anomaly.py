"""What autograd's anomaly detection costs where a job has left it on.

In the forward pass it takes a stack trace for each node of the graph; behind each node of the backward pass it looks
for NaN. Both are seen in the call-site window only; which line switched it on is noted when that happens.
"""

import sys
import time

import torch

from ..changes import Changes

_TRACES = "torch.fx.traceback"
"""The module whose `format_stack` autograd calls for each node; imported at the first of them."""
SEARCH = ("aten::isnan", "aten::_is_any_true")
"""The engine's search for NaN, in this order; the result is then read as a scalar."""
_clock = time.perf_counter_ns


class Anomaly:
    """Where it was switched on last."""

    def __init__(self, sites, guarded) -> None:
        self.sites = sites
        self.guarded = guarded
        self.reset()

    def reset(self) -> None:
        self.site = -1

    def switched(self) -> None:
        """It was switched on, or off."""
        if torch.is_anomaly_enabled():
            self.site = self.sites.here()


class AnomalyWatch:
    """Times both while the call-site window is open."""

    def __init__(self, anomaly: Anomaly) -> None:
        self.anomaly = anomaly
        self.note_trace = anomaly.guarded("anomaly", self._note_trace)
        self.traces = [0, 0]
        """How many, and their nanoseconds."""
        self.checks = [0, 0]
        self.searching = False
        self.place = -1
        """A line of the loop, in case that of the switch is not known."""
        self.changes = Changes()

    def open(self) -> None:
        module = sys.modules.get(_TRACES)
        if hasattr(module, "format_stack"):
            self.changes.put(module, "format_stack", self._timed(module.format_stack))

    def close(self) -> None:
        self.changes.take_back()

    def _timed(self, original):
        def format_stack():
            began = _clock()
            trace = original()
            self.note_trace(_clock() - began)
            # The last entry is the call above, which is not the job's.
            return trace[:-1] if trace and __file__ in trace[-1] else trace

        return format_stack

    def _note_trace(self, took: int) -> None:
        if torch.is_anomaly_enabled():
            self.traces[0] += 1
            self.traces[1] += took
            if self.place < 0:
                self.place = self.anomaly.sites.here()

    def is_search(self, name: str, backward: bool, took: int) -> bool:
        """Whether an operator is part of the search for NaN; if so, it is counted. `took` nanoseconds."""
        if name in SEARCH:
            self.searching = backward and torch.is_anomaly_enabled()
            if not self.searching:
                return False
            self.checks[0] += name == SEARCH[0]
        elif not self.searching:
            return False
        else:  # the read that ends it
            self.searching = False
        self.checks[1] += took
        return True

    def found(self) -> "list[tuple]":
        """Both as the call-site window's `found`; none where it was off."""
        site, known = (self.anomaly.site, True) if self.anomaly.site >= 0 else (self.place, False)
        return [
            ((kind, site, "switch" if known else "", False), counted)
            for kind, counted in (("anomaly_trace", self.traces), ("anomaly_check", self.checks))
            if counted[0]
        ]
