"""What the job's operators would take otherwise, timed on tensors of our own once the job has made its last step.

Not when the operator window closes: that took up to 0.4 s of the job's time, and what was allocated for it changed
where glibc puts the job's own memory (a step of 13 ms took 9.8 ms afterwards). A job that is killed has no timings.
"""

import torch

from ..blas import PoolUse
from . import (
    attention,
    batch,
    convolutions,
    deterministic,
    dtype,
    groups,
    layout,
    once_each,
    onednn,
    parameters,
    recurrent,
    replay,
    routed,
    stacked,
    ways,
)
from .passes import PassMicrobenchmark, always

_NO_UPDATE = {
    "missing": "the optimizer's update was not timed: there is none, it is compiled, or it is not on the CPU",
}


class FinalMicrobenchmark:
    """What the operator window saw, kept until the end."""

    def __init__(self, ops: list, arguments: list, library: dict, weights: "set[tuple]", onednn) -> None:
        """`ops` and `library` as they are recorded. `arguments`: of each operator its full name, shapes, types and
        constants. `weights`: shapes of parameters. `onednn`: whether it was on in the forward pass."""
        self.ops = ops
        self.arguments = arguments
        self.library = library
        self.weights = weights
        self.onednn = onednn
        self.pools = PoolUse()
        self.recurrent: list = []
        """What it takes to call each recurrent layer of `library` again."""
        self.attention: list = []
        """The same of each attention."""
        self.update = None
        """Of the optimizer."""
        self.passes = PassMicrobenchmark()
        """Of the modules that the loop calls."""
        self.in_parts: "list[tuple[dict, PassMicrobenchmark]]" = []
        """Modules that are called for one part after the other."""
        self.in_turn: "list[tuple[dict, tuple]]" = []
        """Modules that are called for one position after the other, as facts, `Turns` and passes."""
        self.repeated_rows: "list[tuple[dict, PassMicrobenchmark]]" = []
        """Modules that are given the same rows several times over."""
        self.siblings: list = []
        """Loops over modules of one class, as facts and `Siblings`."""
        self.experts: "list[tuple[dict, list]]" = []
        """Modules of one class that are given the same rows, as facts and weak references."""
        self.unused = None
        """Gradients of theirs that no optimizer uses."""

    def timings(self, may_call: bool) -> dict:
        """Takes up to three seconds. Empty inside a mode of the job, which would see our operators. Whatever draws
        random numbers (dropout) leaves the generator as the job had it. `may_call`: nobody uses what the job changes
        from now on, so that its own code may be called."""
        if not replay.alone():
            return {}
        pools = self.pools.rows()
        state = torch.get_rng_state()
        try:
            found = {"pools": pools, **self._timings()}
            if may_call:
                found["passes"] = self.passes.timings()
                found.update(deterministic.timings(self.passes))
                if self.unused is not None:
                    found["frozen"] = self.passes.without({"frozen": always(self.unused.freeze, self.unused.thaw)})
                parts = ((facts, one) for facts, one in self.in_parts if not one.keeps_state())
                timed = [{**facts, **one.timings()} for facts, one in parts]
                found["in_parts"] = [one for one in timed if "times" in one]
                timed = [{**facts, **turns.timings(one)} for facts, (turns, one) in self.in_turn]
                found["in_turn"] = [one for one in timed if "now_ms" in one]
                timed = [{**facts, **once_each.timings(one, facts["rows"])} for facts, one in self.repeated_rows]
                found["repeated_rows"] = [one for one in timed if "now_ms" in one]
                timed = [{**facts, **stacked.timings(siblings)} for facts, siblings in self.siblings]
                found["siblings"] = [one for one in timed if "now_ms" in one]
                timed = [{**facts, **routed.timings(self.passes, experts)} for facts, experts in self.experts]
                found["experts"] = [one for one in timed if "now_ms" in one]
                found["ways"] = ways.timings(
                    self.passes, self.ops, self.library.get("attention", [])
                )  # last: glibc keeps memory from here on
            return found
        finally:
            torch.set_rng_state(state)

    def _timings(self) -> dict:
        seen = self.library.get("convolutions", [])
        with torch.no_grad():
            found = {
                "dtype": dtype.timings(self.ops, self.arguments),
                "onednn": onednn.timings(self.ops, self.arguments, self.onednn),
                "layout": layout.timings(self.ops, self.arguments, seen),
                "groups": groups.timings(self.ops, self.arguments),
                "batch": batch.timings(self.ops, self.arguments, self.weights),
            }
        return {
            **found,
            "convolutions": convolutions.timings(self.ops, self.arguments),
            "attention": attention.timed(self.library.get("attention", []), self.attention),
            "recurrent": recurrent.timed(self.library.get("recurrent", []), self.recurrent),
            "update": self.update.timings() if self.update is not None else _NO_UPDATE,
            "parameters": parameters.timings(self.update) if self.update is not None else _NO_UPDATE,
        }
