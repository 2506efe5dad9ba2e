"""What perfdoctor itself uses of the process between two steps: its time, and its part of the counters."""

import time

from .. import procfs


class OwnWork:
    """Windows and timings take milliseconds, page faults and CPU time that are not the job's."""

    def __init__(self) -> None:
        self.spent_ns = 0
        self.used: "dict[str, int]" = {}

    def begin(self) -> "tuple[int, dict]":
        """Call before the work; `end` takes what this returns. Both together about 0.1 ms."""
        return time.perf_counter_ns(), procfs.counters()

    def end(self, began: "tuple[int, dict]") -> None:
        """The work is done."""
        since_ns, before = began
        for name, value in procfs.counters().items():
            if value is not None and before.get(name) is not None and name != "maxrss_kb":
                self.used[name] = self.used.get(name, 0) + value - before[name]
        self.spent_ns += time.perf_counter_ns() - since_ns

    def without(self, counters: dict) -> dict:
        """The process's counters less our part."""
        used = self.used
        return {name: value and max(0, value - used.get(name, 0)) for name, value in counters.items()}
