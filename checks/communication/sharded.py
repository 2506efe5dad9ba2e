"""What `fully_shard` sends in too many pieces."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, Part, milliseconds
from perfdoctor.api.quantities import ALL_GATHER, REDUCE_SCATTER

from .case import Case, enough

_SAVED = (0.7, 1.0)
"""Of what the needless groups' part of the collectives takes, by their number: 16 groups took 53 ms, one 4.9. What the
host does for each group beside (copies in and out) is no part of it."""


def small_shards(case: Case) -> Finding | None:
    """Modules that were wrapped each on its own, although a few of their parameters fill a message."""
    together = case.together
    sent = [call for kind in (ALL_GATHER, REDUCE_SCATTER) if (call := together.of_kind(kind)) is not None]
    groups, total = len(together.shard_bytes), sum(together.shard_bytes)
    if not sent or not groups:
        return None
    few = enough(groups, total)
    all_ms = sum(call.least_ms for call in sent)
    cost = None if few is None else case.worth(all_ms * (1 - few / groups))
    if few is None or cost is None:
        return None
    return Finding(
        id="PD19.small-shards",
        severity=case.severity(cost),
        confidence=Confidence.MEDIUM,
        message="`fully_shard` gathers {groups:group} of {group_bytes} each on its own, where {enough} would do: "
        "{cost_ms} per step ({cost_share})",
        reasoning="each group of parameters is a collective of its own before its forward pass, again before its "
        "backward pass where it was freed meanwhile, and one more for its gradients: {collectives:round trip} "
        "per step, {collectives_ms} in all",
        evidence=(
            *cost.measured("by the number of needless groups, per step"),
            Measurement("groups", groups, "count", "groups of parameters"),
            Measurement("group_bytes", total / groups, "bytes", "mean size of a group"),
            Measurement("enough", few, "count", "groups of 25 MiB, and one for the root"),
            Measurement(
                "resharded", together.resharded, "count", "groups that are gathered again for the backward pass"
            ),
            Measurement(
                "collectives", sum(call.calls_per_step for call in sent), "count", "all-gathers and reduce-scatters"
            ),
            milliseconds("collectives_ms", all_ms, "in them on the rank that waits least, per step"),
        ),
        fix=Fix(
            text="Wrap whole blocks, not single layers; what is small can stay with the root. Where memory allows, "
            "keep parameters after the forward pass: `reshard_after_forward=False`.",
            code="for block in model.blocks:  # each with tens of megabytes of parameters\n    fully_shard(block)\n"
            "fully_shard(model, reshard_after_forward=False)",
            risk="A larger group needs more memory while it is gathered.",
        ),
        savings=cost.savings(
            _SAVED, "the measured collectives, by how many of their groups are not needed", Part.COMMUNICATION
        ),
    )
