"""From where on a layer is worth a finding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds, as shares of the steady step unless they say otherwise."""

    min_share: float = 0.10
    """A network is not rebuilt for less."""
    error_share: float = 0.50
    """A judgement: half of the step in one cause."""
    slow_share: float = 0.30
    """Share of the step from which on a layer is asked whether it computes for that long."""
    slow_factor: float = 3.0
    """Its time share over its FLOP share: layers of one network differ by two in efficiency, shapes apart."""
    slow_min_ms: float = 1.0
    """Below, a layer is cheap whatever its share: a small network has no large layers."""
    oversized_share: float = 0.50
    """Forward, backward and update. The largest layer of a sane network is often above: its width must say the same."""
    oversized_weight: float = 0.60
    """Share of the parameters or FLOPs that an oversized layer holds."""
    oversized_width: float = 4.0
    """Its longer side over the median of the other layers': a transformer's widest is 4 times its narrowest."""
    oversized_warning: float = 0.60
    """Share of the step from which on an oversized layer is more than a note."""
    unused_outputs: float = 0.5
    """Share of a head's outputs above the highest class that any target named."""
    unused_targets: int = 50
    """Targets to have seen before their highest says something."""
    unused_chance: float = 1e-6
    """That a vocabulary sorted by frequency shows no word beyond the highest by chance: by Zipf's law the rarer half of
    50,000 words is 6 % of a text, so 220 targets are needed to call it unused, and 13 for all but 30 words."""
    unused_classes: int = 8
    """Different classes among them: data sorted by class shows one or two of them in the profiled steps. Of fewer than
    200 targets a quarter must differ."""
    head_outputs: int = 10_000
    """The guide's figure for a head of which all outputs are used, or nobody knows; it must also cost."""
    head_share: float = 0.30
    """Cut cross-entropy and the like pay from a third of the step on."""
    cell_calls: int = 8
    """Calls of a recurrent cell per step: fewer time steps gain nothing from a fused layer."""
    table_touched: float = 0.10
    """Share of a table's rows in a batch, above which a sparse gradient saves little."""
