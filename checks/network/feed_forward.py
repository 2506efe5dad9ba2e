"""Feed-forward parts many times as wide as what they are given: a library's default beside a smaller model."""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Severity,
    location,
    milliseconds,
    savings,
    share,
)
from perfdoctor.api.quantities import Layer

from .case import Case
from .layer_table import title

_USUAL = 4
"""Times as wide, as in most transformers since the first one; gated ones take 2.7 times."""
_SAVED = (0.75, 1.15)
"""Of what these layers take beyond that: narrower products run a little less well, and what lies between the two (an
activation, dropout) gets narrower too."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two products, there and back."""

    wider: Layer
    narrower: Layer

    @property
    def times(self) -> float:
        wide, narrow = self.wider.weight_shape
        return wide / narrow

    def ms(self, case: Case) -> float:
        """With their part of the update."""
        return sum(layer.ms + case.update_ms(layer) for layer in (self.wider, self.narrower))


def wide_feed_forward(case: Case) -> Finding | None:
    """By their layers, all of them together. Nothing is wrong where the job chose that width."""
    pairs = [pair for pair in _pairs(case) if pair.times >= case.limits.wide_factor]
    beyond_ms = sum((1 - _USUAL / pair.times) * pair.ms(case) for pair in pairs)
    if case.sure_share(beyond_ms) < case.limits.min_share:
        return None
    cost = Cost(case.step, sum(pair.ms(case) for pair in pairs))
    widest = max(pairs, key=lambda pair: pair.ms(case))
    wide, narrow = widest.wider.weight_shape
    left = case.evidence.job.option("feed_forward")
    return Finding(
        id="PD09.wide-feed-forward",
        severity=Severity.NOTE if left is None else case.severity(Cost(case.step, beyond_ms)),
        confidence=Confidence.MEDIUM,
        message="{pairs:feed-forward part} {times} as wide as the model: {cost_ms} per step ({cost_share})",
        reasoning="{layer} makes {wide:number} of {narrow}, and four times as many are usual"
        + ("" if left is None else "; the job says how wide the model is, and leaves this at its default"),
        evidence=(
            Measurement("layer", title(widest.wider), "text"),
            *cost.measured(),
            Measurement("pairs", len(pairs), "count", "pairs of products, there and back"),
            Measurement("times", widest.times, "ratio", "its width over that of what it is given"),
            Measurement("wide", wide, "count", "its outputs"),
            Measurement("narrow", narrow, "count", "its inputs"),
            milliseconds("beyond_ms", beyond_ms, "for what is wider than four times"),
            share("beyond_share", beyond_ms / case.step.step_ms, "of the step"),
        ),
        location=location(left or widest.wider.place),
        fix=Fix(
            text="Make the feed-forward part four times as wide as the model.",
            code=f"BertConfig(hidden_size={narrow}, intermediate_size={_USUAL * narrow})\n"
            f"nn.TransformerEncoderLayer({narrow}, heads, dim_feedforward={_USUAL * narrow})",
            risk="A model of fewer weights may learn less: compare the validation loss.",
        ),
        savings=savings(
            case.step,
            _SAVED[0] * beyond_ms,
            _SAVED[1] * beyond_ms,
            "the layers' time and their part of the update, in proportion to what is wider than four times",
        ),
    )


def _pairs(case: Case) -> list[_Pair]:
    """Each layer with the next one that takes its outputs back to as many as its inputs."""
    linear = [layer for layer in case.profile.layers if layer.kind == "Linear" and len(layer.weight_shape) == 2]
    found, taken = [], set()
    for layer in sorted(linear, key=lambda layer: layer.order):
        back = layer.weight_shape[::-1]
        later = [one for one in linear if one.order > layer.order and one.weight_shape == back]
        following = min(later, key=lambda one: one.order, default=None)
        if layer.weight_shape[0] > layer.weight_shape[1] and following is not None and following.order not in taken:
            taken.add(following.order)
            found.append(_Pair(layer, following))
    return found
