"""Where ranks agree whose launchers do not hear of one another: in the job's own store.

Rank 0 gives orders, each under the next number; every rank looks for new ones at step boundaries. The order to leave
names a step. Whoever has passed it says so at once; who comes to it stands there until all have come, which they say by
the one verdict that the store keeps: the first. So either all ranks leave between the same two steps, none of them in a
collective, or none does, and the job goes on. Nothing waits without an end.

Loaded only in a job whose ranks one launcher does not all hear from.
"""

import collections
import json
import math
import time

from . import stores
from .control import period_ns

_MARGIN_NS = 300_000_000
"""For an order to be seen, beyond the time between two looks; doubled where a rank had passed its step all the same."""
_PATIENCE_NS = 5_000_000_000
"""For ranks that come late, at the least; and for four steps."""
_ATTEMPTS = 3
_LEAVE, _LATE, _PASSED = "leave", "late", "passed"


class Meeting:
    """What a rank knows of it."""

    def __init__(self, rank: int, world: int, launcher) -> None:
        """Raises RuntimeError where the ranks have no store in common that can be reached."""
        self.rank = rank
        self.world = world
        self.launcher = launcher
        self.common = stores.own()
        self.period_ns = max(period_ns(world), self.common.least_period_ns)
        self.seen = self.common.count("orders")
        self.wanted = self.common.count("wanted")
        store = self.common.reach()
        store.set(f"joined/{rank}", "")
        store.add("joined", 1)
        self.due_ns = 0
        self._pause_s = self.period_ns / 50e9
        self.looks = collections.deque(maxlen=3)
        """Step and time of the last ones."""
        self.met = False
        """Rank 0: whether every rank has come here."""
        self.round = -1
        """Number of the order to leave that holds; -1 for none."""
        self.why = None
        """The reason to leave, once all are to; "" is that enough was seen."""
        self.asked_ns = self.attempts = self.furthest = 0

    def _are_all_here(self) -> bool:
        self.met = self.met or self.common.count("joined") >= self.world
        return self.met

    # -- at a step boundary -------------------------------------------------------------------------------

    def look(self, step: int) -> None:
        """Take the orders that are new."""
        now = time.perf_counter_ns()
        if now < self.due_ns:
            return
        self.due_ns = now + self.period_ns
        self.looks.append((step, now))
        count = self.common.count("orders")
        while self.seen < count:
            number, self.seen = self.seen, self.seen + 1
            self._take(number, json.loads(self.common.reach().get(f"order/{number}")), step)
        if self.rank == 0:
            self._lead(step, now)

    def _take(self, number: int, order: dict, step: int) -> None:
        if order["do"] != "leave":
            self.launcher.obey(order, step)
        elif step > order["step"]:
            self.common.reach().compare_set(f"verdict/{number}", "", f"{_PASSED} {step}")
        else:
            self.round, self.why = number, order["why"]
            self.launcher.probe.stop_at = order["step"]

    def stand(self, step: int) -> bool:
        """At the step of the order: wait until all ranks have come, a few seconds at most. Whether all leave now."""
        number, self.round = self.round, -1
        verdict = f"verdict/{number}"
        store = self.common.reach()
        store.set(f"here/{number}/{self.rank}", "")
        if store.add(f"here/{number}", 1) == self.world:
            store.compare_set(verdict, "", _LEAVE)
        deadline = time.perf_counter_ns() + max(_PATIENCE_NS, 4 * self._step_ns())
        while not self.common.reach().check([verdict]):
            if time.perf_counter_ns() > deadline:
                store.compare_set(verdict, "", _LATE)
            time.sleep(self._pause_s)
        said = store.get(verdict).decode()
        if said != _LEAVE and self.rank == 0:
            self._failed(number, said)
        return said == _LEAVE

    def part(self) -> None:
        """Let go of the store, all else done. Where rank 0 keeps it, that one is the last to leave: others read it."""
        if self.common.goes_with_rank_0:
            if self.rank != 0:
                self.common.reach().add("gone", 1)
            deadline = time.perf_counter_ns() + 2 * _PATIENCE_NS
            while self.rank == 0 and self.common.count("gone") < self.world - 1 and time.perf_counter_ns() < deadline:
                time.sleep(self._pause_s)
        self.common.close()

    # -- who gives orders ---------------------------------------------------------------------------------

    def ask(self, why: str) -> None:
        """All ranks are to leave. `why`: in words; "" when enough was seen."""
        if self.rank != 0:
            store = self.common.reach()
            if not store.check(["joined/0"]):
                self._give_up("perfdoctor does not observe rank 0")
            elif why:  # else it is for rank 0 to say
                store.set("why", why)
                store.add("wanted", 1)
        elif self.why is None:
            self.why, self.asked_ns = why, time.perf_counter_ns()
            self.attempts = self.furthest = 0

    def post(self, order: dict) -> int:
        """Rank 0: give an order to all others; its number."""
        number, store = self.seen, self.common.reach()
        store.set(f"order/{number}", json.dumps(order))
        self.seen = store.add("orders", 1)
        return number

    def _lead(self, step: int, now: int) -> None:
        wanted = self.common.count("wanted")
        if wanted > self.wanted:
            self.wanted = wanted
            self.ask(self.common.reach().get("why").decode())
        here = self._are_all_here()
        if self.why is None or self.round >= 0:
            return
        if here:
            self._set_step(max(step, self.furthest))
        elif now - self.asked_ns > _PATIENCE_NS:
            self._give_up(f"perfdoctor does not observe {self._missing('joined')}")

    def _set_step(self, step: int) -> None:
        ahead_ns = 2 * self.period_ns + _MARGIN_NS * 2**self.attempts
        at = step + math.ceil(ahead_ns / self._step_ns()) + 1
        self.round = self.post({"do": "leave", "step": at, "why": self.why})
        self.launcher.probe.stop_at = at

    def _failed(self, number: int, said: str) -> None:
        """Not all could leave at the step of that order: another is named, a few times."""
        self.attempts += 1
        verdict, _, passed = said.partition(" ")
        self.furthest = int(passed or 0)
        if self.attempts < _ATTEMPTS:
            return
        if verdict == _LATE:
            self._give_up(f"{self._missing(f'here/{number}')} did not come to the step at which all others stood")
        else:
            self._give_up("its ranks are too many steps apart to leave at the same one")

    def _give_up(self, why: str) -> None:
        self.why = None
        self.launcher.control.send({"k": "cannot", "why": why})

    def _missing(self, name: str) -> str:
        """The ranks that have not set this, in words."""
        store = self.common.reach()
        ranks = [str(rank) for rank in range(self.world) if not store.check([f"{name}/{rank}"])]
        return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(ranks[:3]) + (", ..." if len(ranks) > 3 else "")

    # -- time ---------------------------------------------------------------------------------------------

    def _step_ns(self) -> float:
        """Of the last few steps, the mean."""
        (first, began), (last, now) = self.looks[0], self.looks[-1]
        return (now - began) / (last - first) if last > first else _PATIENCE_NS
