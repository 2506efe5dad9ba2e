"""What the job's operators would take otherwise, timed on tensors of our own once the job has made its last step.

Not when the operator window closes: that took up to 0.4 s of the job's time, and what was allocated for it changed
where glibc puts the job's own memory (a step of 13 ms took 9.8 ms afterwards). A job that is killed has no timings.
"""

import torch

from . import attention, batch, dtype, layout, onednn, recurrent, replay


class FinalMicrobenchmark:
    """What the operator window saw, kept until the end."""

    def __init__(self, summary: dict, arguments: list, weights: "set[tuple]", onednn, replays: list, update) -> None:
        """`arguments`: of each operator of the summary. `weights`: shapes of parameters. `onednn`: whether it was on
        in the forward pass. `replays`: of each recurrent layer of the summary. `update`: of the optimizer, or None."""
        self.ops = summary["ops"]
        self.arguments = arguments
        self.weights = weights
        self.onednn = onednn
        self.attention = summary["library"].get("attention", [])
        self.convolutions = summary["library"].get("convolutions", [])
        self.recurrent = replays
        self.update = update

    def timings(self) -> dict:
        """Takes up to a second and a half. Empty inside a mode of the job, which would see our operators. Whatever
        draws random numbers (dropout) leaves the generator as the job had it."""
        if not replay.alone():
            return {}
        state = torch.get_rng_state()
        try:
            return self._timings()
        finally:
            torch.set_rng_state(state)

    def _timings(self) -> dict:
        with torch.no_grad():
            found = {
                "timings": dtype.timings(self.ops, self.arguments),
                "onednn": onednn.timings(self.ops, self.arguments, self.onednn),
                "layout": layout.timings(self.ops, self.arguments, self.convolutions),
                "batch": batch.timings(self.ops, self.arguments, self.weights),
            }
        return {
            **found,
            "attention": attention.timings(self.attention),
            "recurrent": recurrent.timings(self.recurrent),
            **({"update": self.update.timings()} if self.update is not None else {}),
        }
