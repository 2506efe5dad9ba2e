"""What attention as the job computes it takes, and what `scaled_dot_product_attention` would: timed both ways.

Runs after the job's last step, on tensors of its own.
"""

import functools
import time

import torch

from ..rows import rounded
from . import replay

_TIMED = 3
_LIMIT_NS = 300_000_000
"""For all together; the next one is not begun after that."""
_CALL_MS = 30.0
"""One replayed call should take no longer: a large one is replayed in part, fewer heads, then fewer positions. Less
would fit into caches that the whole does not fit into, and flatter the long way."""
_ELEMENTS = 1 << 23
"""Largest matrix of scores replayed, in elements: 32 MiB in float32, and a few copies of that."""
_ENOUGH_NS = 100_000_000
"""For the rounds of one."""
_SIZES = ("batch", "queries", "width", "keys")
_ALIKE = ("made", "dtype", *_SIZES, "mask", "dropout")
_NOT_REPLAYED = {"missing": "it was not replayed"}


def timed(attention: list, replays: list) -> list:
    """The rows with the timing of each: a call forward and backward, and the share of it that was replayed.

    None of what is fused already. `replays`: the type of the softmax, and whether there is a backward pass.
    """
    began = time.perf_counter_ns()
    known: "dict[str, dict]" = {}
    found: "list[dict]" = []
    for record, (softmax, backward) in zip(attention, replays):
        found.append({**record, "timing": _NOT_REPLAYED})
        if record["made"] == "fused":
            continue
        alike = str([softmax, backward] + [record[name] for name in _ALIKE])
        if alike not in known:  # else the same in another layer
            if len(known) == _TIMED or time.perf_counter_ns() - began > _LIMIT_NS:
                continue
            try:
                known[alike] = _timing(record, softmax, backward)
            except Exception:  # a type or a shape that cannot be replayed: no timing, no harm
                continue
        found[-1]["timing"] = known[alike]
    return found


def _timing(record: dict, softmax: "str | None", backward: bool) -> dict:
    batch, queries, width, keys = (record[name] for name in _SIZES)
    call_ms = record["ms_per_step"] / record["calls_per_step"]
    part = min(1.0, _CALL_MS / max(0.001, call_ms), _ELEMENTS / max(1, batch * queries * keys))
    fewer = max(min(batch, torch.get_num_threads()), int(batch * part))
    shorter = max(1.0, fewer * queries * keys / max(1.0, part * batch * queries * keys)) ** 0.5
    sizes = (fewer, max(1, int(queries / shorter)), width, max(1, int(keys / shorter)))
    with_gradient = backward and not torch.is_inference_mode_enabled()
    with torch.set_grad_enabled(with_gradient), torch.autocast("cpu", enabled=False):
        now, fused, *causal = _Replay(record, sizes, softmax, with_gradient).times()
    return {
        "now_ms": now,
        "fused_ms": fused,
        "causal_ms": causal[0] if causal else None,
        "part": rounded(sizes[0] * sizes[1] * sizes[3] / (batch * queries * keys)),
        "choice": _choice(record, sizes),
    }


class _Replay:
    """The same attention made both ways, forward and, where the job had one, backward."""

    def __init__(self, record: dict, sizes: tuple, softmax: "str | None", with_gradient: bool) -> None:
        batch, queries, width, keys = sizes
        dtype = getattr(torch, record["dtype"])
        self.record = record
        self.with_gradient = with_gradient
        generator = torch.Generator().manual_seed(0)
        self.query, self.key, self.value = (
            torch.randn(1, batch, count, width, generator=generator).to(dtype).requires_grad_(with_gradient)
            for count in (queries, keys, keys)
        )
        self.gradient = torch.ones(1, batch, queries, width, dtype=dtype)
        self.dropout = record["dropout"]
        self.causal = record["mask"] == "causal"
        self.mask = None
        if record["mask"] == "add":
            self.mask = torch.zeros(queries, keys, dtype=dtype)
        elif record["mask"]:
            self.mask = torch.ones(queries, keys, dtype=torch.bool).tril()
        self.single = record["made"] == "by hand" and (softmax or record["dtype"]) != record["dtype"]

    def times(self) -> "list[float]":
        """Milliseconds as it is made and by the fused kernel; where the mask may be causal also for that: the kernel
        leaves out what it hides."""
        ways = [self._now, self._fused]
        if self.record["mask"] == "fill" and self.record["queries"] == self.record["keys"]:
            ways.append(functools.partial(self._function, True, causal=True))
        return replay.in_turns([functools.partial(self._run, way) for way in ways], _ENOUGH_NS)

    def _run(self, way) -> None:
        result = way()
        if self.with_gradient:
            replay.run_backward(result, self.gradient, (self.query, self.key, self.value))

    def _now(self):
        if self.record["made"] == "math":
            return self._function(False)
        scores = (self.query @ self.key.transpose(-2, -1)) * 0.125
        if self.record["mask"] == "add":
            scores = scores + self.mask
        elif self.mask is not None:
            scores = scores.masked_fill(~self.mask, float("-inf"))
        if self.single:
            weights = torch.softmax(scores, -1, dtype=torch.float32).to(self.query.dtype)
        else:
            weights = torch.softmax(scores, -1)
        if self.dropout:
            weights = torch.nn.functional.dropout(weights, self.dropout)
        return weights @ self.value

    def _fused(self):
        return self._function(True)

    def _function(self, flash: bool, causal: bool = False):
        causal = causal or self.causal
        allowed = torch._C._get_flash_sdp_enabled()
        torch._C._set_sdp_use_flash(flash)
        try:
            return torch.nn.functional.scaled_dot_product_attention(
                self.query,
                self.key,
                self.value,
                attn_mask=None if causal else self.mask,
                dropout_p=self.dropout,
                is_causal=causal,
            )
        finally:
            torch._C._set_sdp_use_flash(allowed)


def _choice(record: dict, sizes: tuple) -> str:
    """What torch would do now with such tensors, between the steps: `math` or `fused`."""
    batch, queries, width, keys = sizes
    query = torch.empty(1, batch, queries, width, dtype=getattr(torch, record["dtype"]))
    key = torch.empty(1, batch, keys, width, dtype=query.dtype)
    chosen = torch._fused_sdp_choice(query, key, key, None, record["dropout"], False)
    return "fused" if chosen else "math"
