"""What the job's operators would take otherwise, timed on tensors of our own once the job has made its last step.

Not when the operator window closes: that took up to 0.4 s of the job's time, and what was allocated for it changed
where glibc puts the job's own memory (a step of 13 ms took 9.8 ms afterwards). A job that is killed has no prices.
"""

import torch

from . import (
    attention_pricing,
    batch_pricing,
    dtype_pricing,
    layout_pricing,
    library_pricing,
    pricing,
    recurrent_pricing,
)


class FinalPricing:
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

    def prices(self) -> dict:
        """Takes up to a second and a half. Empty inside a mode of the job, which would see our operators. Whatever
        draws random numbers (dropout) leaves the generator as the job had it."""
        if not pricing.alone():
            return {}
        state = torch.get_rng_state()
        try:
            return self._prices()
        finally:
            torch.set_rng_state(state)

    def _prices(self) -> dict:
        with torch.no_grad():
            found = {
                "prices": dtype_pricing.prices(self.ops, self.arguments),
                "onednn": library_pricing.prices(self.ops, self.arguments, self.onednn),
                "layout": layout_pricing.prices(self.ops, self.arguments, self.convolutions),
                "batch": batch_pricing.prices(self.ops, self.arguments, self.weights),
            }
        return {
            **found,
            "attention": attention_pricing.prices(self.attention),
            "recurrent": recurrent_pricing.prices(self.recurrent),
            **({"update": self.update.prices()} if self.update is not None else {}),
        }
