"""What tracing costs: steps of the job that its tracer hears of, and steps with it looking away, in turns."""

import time

_ROUNDS = 5
_LIMIT_NS = 10_000_000_000
"""The round in which it is reached is the last."""


class TracingWindow:
    """Opened at one step boundary, closed at another."""

    microbenchmark = final_microbenchmark = None

    def __init__(self, name: str, untraced) -> None:
        self.name = name
        self.untraced = untraced
        self.is_untraced = False
        self.block = 0
        """Steps of one kind in a row: as long as a window usually is."""
        self.took: "tuple[list, list]" = [], []
        """Milliseconds of CPU time per step: traced and not."""

    def obstacle(self) -> str:
        """Why this cannot be done now, or ""."""
        return self.untraced.obstacle()

    def open(self) -> None:
        self.opened_ns = time.perf_counter_ns()
        self.began_ns = time.thread_time_ns()

    def stays(self, steps: int) -> bool:
        """At each boundary from the first block's end on: the other kind's turn, until there are rounds enough."""
        self.block = self.block or steps
        if steps % self.block:
            return True
        if not self.untraced.holds():
            return False
        self.took[self.is_untraced].append((time.thread_time_ns() - self.began_ns) / self.block / 1e6)
        blocks = steps // self.block
        late = time.perf_counter_ns() - self.opened_ns > _LIMIT_NS
        if blocks % 2 == 0 and (late or blocks >= 2 * _ROUNDS):
            self._switch(False)  # here, where it was begun
            return False
        # One, two of the other kind, two of the first: what drifts disturbs both alike.
        self._switch(blocks % 4 in (1, 2))
        self.began_ns = time.thread_time_ns()
        return True

    def _switch(self, is_untraced: bool) -> None:
        if is_untraced and not self.is_untraced:
            self.untraced.begin()
        elif self.is_untraced and not is_untraced:
            self.untraced.end()
        self.is_untraced = is_untraced

    def closable(self) -> bool:
        """Nothing of it depends on where the thread is."""
        return True

    def is_gone(self) -> bool:
        """Never: it is the thread's or the process's."""
        return False

    def abandon(self) -> None:
        """Trace again."""
        self._switch(False)

    def close(self, steps: int) -> dict:
        """What `steps` steps took."""
        self.abandon()
        traced, untraced = self.took
        if not untraced:
            return {"missing": "the job ended the tracing meanwhile"}
        return {**self.untraced.facts(), "traced_ms": traced, "untraced_ms": untraced}
