"""Packed sequences on a CPU, where oneDNN does the LSTM of padded ones alone."""

from __future__ import annotations

from perfdoctor.api.causes import in_step
from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    location,
    milliseconds,
    savings,
    severity,
)
from perfdoctor.api.quantities import Evidence, LibraryUse, Missing, OpProfile, Recurrent, Site, Step

from .._shared.lines import layer_place
from .._shared.run_again import passes_cost, saved
from .case import Limits


def packed_sequences(evidence: Evidence, step: Step, ops: OpProfile, use: LibraryUse, limits: Limits) -> Finding | None:
    """By the job's own layers, replayed on sequences of its lengths, packed and padded."""
    layers = [one for one in use.recurrent if one.packed_ms > one.padded_ms > 0]
    if use.on_device or not layers:
        return None
    costs = [passes_cost(step, in_step(step, ops, one.ms_per_step)) for one in layers]
    parts = [saved(cost, one.packed_ms, one.padded_ms) for cost, one in zip(costs, layers, strict=True)]
    low, high = (sum(side) for side in zip(*parts, strict=True))
    if low < limits.min_share * step.step_ms:
        return None
    largest, cost = layers[0], passes_cost(step, sum(cost.ms for cost in costs))
    return Finding(
        id="PD02.packed-sequences",
        severity=severity(low / step.step_ms, limits.min_share, limits.error_share),
        confidence=Confidence.HIGH,
        message="packed sequences keep oneDNN from {layer}: {cost_ms} per step, {ratio} as long as padded",
        reasoning="torch gives oneDNN only LSTMs over padded sequences, and takes packed ones step by step with its "
        "own kernels; a call on sequences of the job's lengths took {packed_ms} packed and {padded_ms} padded",
        evidence=(
            Measurement("layer", largest.layer or largest.module, "text", "the costliest"),
            *cost.measured("in these layers per step, forward and backward"),
            Measurement("ratio", largest.packed_ms / largest.padded_ms, "ratio", "packed over padded, timed"),
            milliseconds("packed_ms", largest.packed_ms, "a call on packed sequences, replayed"),
            milliseconds("padded_ms", largest.padded_ms, "a call on padded ones"),
            Measurement("layers", len(layers), "count", "layers with it"),
        ),
        location=location(_site(evidence, largest)),
        fix=Fix(
            text="Give the layer the padded sequences, and take each one's state at its own end.",
            code="output, _ = self.lstm(padded)\n"
            "last = output[torch.arange(len(output)), lengths - 1]  # what h_n[-1] was",
            risk="Positions behind a sequence's end hold numbers: mask them where outputs are summed or averaged. On a "
            "GPU, packed sequences are the faster ones.",
        ),
        savings=savings(step, low, high, "the layers replayed on sequences of the job's lengths, packed and padded"),
    )


def _site(evidence: Evidence, largest: Recurrent) -> Site | None:
    """Where they are packed, else where the layer is called."""
    calls = () if isinstance(evidence.call_sites, Missing) else evidence.call_sites
    packing = [call for call in calls if call.kind == "packs"]
    dearest = max(packing, key=lambda call: call.ms_per_step, default=None)
    return layer_place(evidence, largest.layer, largest.module) if dearest is None else dearest.site
