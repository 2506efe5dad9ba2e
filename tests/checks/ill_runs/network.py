"""Runs with layers out of proportion."""

from __future__ import annotations

from typing import Any

from samples import HOT_LINES, LAYERS, healthy, with_

from perfdoctor.evidence.model import Evidence, Experts, IndexUse, Layer, Line, Op, Siblings, Site, TrainerOption

LEFT = TrainerOption("feed_forward", Site("train.py", 107, "build_model"))
"""The width of a feed-forward part is left at its default here."""
HEADS_LINE = Site("model.py", 28, "forward")


def layer(kind: str = "Linear", share: float = 0.6, flops: float = 0.6, **changes: Any) -> Layer:
    """A layer that takes this share of a step of 25 ms, a third of it forward."""
    return with_(
        LAYERS.layers[0],
        **{
            "name": "big",
            "kind": kind,
            "order": 2,
            "forward_ms": 25.0 * share / 3,
            "backward_ms": 25.0 * share * 2 / 3,
            "time_share": share,
            "flop_share": flops,
            "flops_per_step": flops * 4e8,
            "made_at": Site("model.py", 5, "__init__"),
            "called_at": Site("model.py", 12, "forward"),
            **changes,
        },
    )


def with_layer(one: Layer, **changes: Any) -> Evidence:
    """A healthy network's layers around one that is not; that one is the slowest."""
    others = tuple(with_(other, forward_ms=0.5, backward_ms=1.0, time_share=0.06) for other in LAYERS.layers)
    ordered = tuple(sorted((one, *others), key=lambda layer: -layer.ms))
    return with_(healthy(), **{"layers__layers": ordered, **changes})


def too_wide(share: float = 0.7, flops: float = 0.9, side: int = 65536, outputs: int = 512, **changes: Any) -> Evidence:
    one = layer(share=share, flops=flops, weight_shape=(outputs, side), parameters=outputs * side)
    total = (("float32", outputs * side + 1_000_000),)
    return with_layer(one, **{"precision__parameter_dtypes": total, **changes})


def wide_feed_forward(times: int = 12, share: float = 0.3, **changes: Any) -> Evidence:
    """Two blocks of 256 units, whose feed-forward parts take so much of the step each."""
    shapes = {"up": (256 * times, 256), "down": (256, 256 * times)}
    parts = tuple(
        layer(name=f"{block}.{name}", share=share / 2, flops=0.2, order=3 + 2 * block + place, weight_shape=shape)
        for block in range(2)
        for place, (name, shape) in enumerate(shapes.items())
    )
    others = tuple(with_(other, forward_ms=0.5, backward_ms=1.0, time_share=0.06) for other in LAYERS.layers)
    return with_(healthy(), **{"layers__layers": (*parts, *others), **changes})


def wide_head(outputs: int = 50_257, share: float = 0.45, flops: float = 0.5) -> Evidence:
    return with_layer(layer(share=share, flops=flops, order=9, weight_shape=(outputs, 512), name="head"))


def unused_outputs(
    highest: int = 299, outputs: int = 2_500, share: float = 0.3, targets: int = 3_000, distinct: int = 290
) -> Evidence:
    """A head of which the targets use the first classes only; its loss takes 1.5 ms of the step of 25 beside it."""
    head = layer(share=share, flops=0.3, order=9, weight_shape=(outputs, 192), name="head", parameters=0)
    loss = Op("_log_softmax", "float32", f"[1536, {outputs}]", 1.0, 1.5, 1.5, 0.0)
    return with_layer(
        head,
        ops__ops=(loss, *healthy().ops.ops),  # type: ignore[union-attr]
        index_use=(IndexUse("target", outputs, 0, targets, distinct, highest),),
    )


def convolution(*weight: int, share: float = 0.61, flops: float = 0.8, usual: float = 0.02) -> Evidence:
    """A convolution of this weight among three of 32 channels and 3 x 3, each with so much of the arithmetic."""
    big = layer("Conv2d", share, flops, weight_shape=weight or (32, 32, 15, 15), order=3, name="wide")
    small = [
        layer("Conv2d", 0.05, usual, weight_shape=(32, 32, 3, 3), order=order, name=f"small{order}")
        for order in (0, 1, 4)
    ]
    return with_(healthy(), layers__layers=(big, *small))


def memory_bound(share: float = 0.4, flops: float = 0.02, kind: str = "BatchNorm2d", **changes: Any) -> Evidence:
    return with_layer(layer(kind, share, flops, **{"weight_shape": (), "parameters": 128, **changes}))


def dense_embedding(
    cost_ms: float = 4.0,
    rows: int = 100_000,
    looked_up: int = 1_000,
    tables: int = 1,
    bag: bool = False,
    **changes: Any,
) -> Evidence:
    """Tables whose gradients take so long; they hold nine tenths of the parameters, and of the optimizer's 2 ms."""
    size: dict[str, Any] = {"weight_shape": (rows, 64), "parameters": rows * 64, "input_shape": (looked_up,)}
    first, *others = (
        layer("EmbeddingBag" if bag else "Embedding", 0.2, 0.0, name=f"table{number}", **size)
        for number in range(tables)
    )
    name = "_embedding_bag_dense_backward" if bag else "embedding_dense_backward"
    gradient = Op(name, "float32", "[1000, 64]", 1.0, cost_ms, cost_ms, 0.0)
    run = with_layer(
        first,
        ops__ops=(gradient, *healthy().ops.ops),  # type: ignore[union-attr]
        precision__parameter_dtypes=(("float32", round(tables * rows * 64 / 0.9)),),
        **changes,
    )
    return with_(run, layers__layers=(*run.layers.layers, *others))  # type: ignore[union-attr]


def renormalized_embedding(ms: float = 8.0) -> Evidence:
    """A table whose rows are scaled one by one as they are looked up, twice a step."""
    table = layer("Embedding", ms, 0.2, name="words", weight_shape=(60_000, 64), parameters=3_840_000)
    scaling = Op("embedding_renorm_", "float32", "[60000, 64] [1024, 8]", 2.0, 0.2 * ms, ms, 0.0)
    return with_layer(table, ops__ops=(scaling, *healthy().ops.ops))  # type: ignore[union-attr]


def time_loop(calls: float = 100.0, share: float = 0.6, kind: str = "LSTMCell") -> Evidence:
    cell = layer(kind, share, 0.3, calls_per_step=calls, name="cell")
    line = Line(
        Site("train.py", 25, "forward", "torch/nn/modules/rnn.py:forward"),
        *("forward", 10 * calls, 7.0, 3.0, 0.9, 0.95, calls),
    )
    return with_layer(cell, hot_lines=(line, *HOT_LINES))


def idle_experts(routed_ms: float = 5.0, live: float = 0.125) -> Evidence:
    """Eight experts that compute all rows, of passes of 10 ms; with an eighth of them the passes take so long."""
    experts = Experts("moe.experts.0", "Expert", HEADS_LINE, 8, 1.0, 12.0, live, 10.0, routed_ms)
    return with_(healthy(), ops__experts=(experts,))


def one_by_one(stacked_ms: float = 1.0, milliseconds: float = 12.0) -> Evidence:
    """Eight heads of 4 ms, which take so much in one call; there are three such loops at the line."""
    heads = Siblings("heads.0", "Head", HEADS_LINE, "for head in self.heads", 8, 1.0, milliseconds, 4.0, stacked_ms)
    return with_(healthy(), ops__siblings=(heads,))
