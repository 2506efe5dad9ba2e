"""Runs with libraries that are off, and attention by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from samples import ATTENTION, CONVOLUTION, RECURRENT, healthy, on_gpu, with_

from perfdoctor.evidence.model import AttentionTiming, CallSite, Evidence, LayoutTiming, LibraryUse, Missing, Site
from perfdoctor.recording.timings import GroupsTiming, PassWays

from .backend import without_onednn


def onednn_off_inside(share: float = 0.8, ratio: float | None = 3.4, **changes: Any) -> Evidence:
    """The same, but on between the steps."""
    return without_onednn(share, ratio, **{"backend__onednn_between_steps": True, **changes})


def unfused(
    made: str = "by hand", took: float = 12.0, ratio: float = 2.0, part: float = 1.0, choice: str = "fused", **one: Any
) -> Evidence:
    """Attention that takes so long a step, and so many times what the fused kernel takes."""
    timing = AttentionTiming(now_ms=took * part, fused_ms=took * part / ratio, part=part, choice=choice)
    layer = with_(ATTENTION, **{"made": made, "ms_per_step": took, "timing": timing, **one})
    line = CallSite("softmax", Site("model.py", 17, "forward"), 1.0, 1.0, f"{layer.queries}x{layer.keys}")
    return with_(healthy(), library_use=LibraryUse((), (), (layer,)), call_sites=(line,))


def unfused_on_gpu(took: float = 10.0, **one: Any) -> Evidence:
    layer = with_(ATTENTION, **{"made": "by hand", "ms_per_step": took, "queries": 1024, "keys": 1024, **one})
    return on_gpu(library_use=LibraryUse((), (), (layer,), on_device=True))


def convolving_on_gpu(
    kernel: str = "cudnn_convolution", took: float = 16.0, one: dict[str, Any] | None = None, **changes: Any
) -> Evidence:
    """Convolutions that take so long of the device's time a step; `one` changes them, `changes` the rest."""
    row = with_(CONVOLUTION, **{"kernel": kernel, "choice": "", "ms_per_step": took, **(one or {})})
    return on_gpu(**{"library_use": LibraryUse((row,), (), (), on_device=True), **changes})


def half_on_gpu(took: float = 16.0, layout: float = 0.0, **one: Any) -> Evidence:
    evidence = convolving_on_gpu(took=took, one={"dtype": "float16", **one})
    return with_(evidence, library_use__layout_ms=layout)


def scattered(copies: float = 4.0) -> Evidence:
    layer = with_(RECURRENT, kernel="_cudnn_rnn", ms_per_step=8.0, copies_ms=copies)
    return on_gpu(library_use=LibraryUse((), (layer,), (), on_device=True))


def packed(took: float = 12.0, ratio: float = 3.0, **one: Any) -> Evidence:
    """An LSTM on packed sequences that takes so long a step, and so many times what it takes on padded ones."""
    layer = with_(
        RECURRENT, **{"kernel": "lstm", "ms_per_step": took, "packed_ms": took, "padded_ms": took / ratio, **one}
    )
    line = CallSite("packs", Site("model.py", 21, "forward"), 1.0, 0.1)
    return with_(healthy(), library_use=LibraryUse((), (layer,), ()), call_sites=(line,))


def upright(took_ms: float = 6.0, **one: Any) -> Evidence:
    """Convolutions along the height of images that are one number wide; turned, passes of 10 ms take so long."""
    shapes = {"input_shape": (8, 16, 250, 1), "weight_shape": (32, 16, 9, 1), **one}
    return _made_again("long axis last", took_ms, **shapes)


def odd(took_ms: float = 6.0, channels: int = 15) -> Evidence:
    """Convolutions of so many channels; with a multiple of 16, passes of 10 ms take so long."""
    return _made_again("even channels", took_ms, input_shape=(8, 3, 64, 64), weight_shape=(channels, 3, 3, 3))


def narrow(wide_ms: float = 1.0) -> Evidence:
    """Convolutions of 64 channels in 32 groups, 6 ms of the step both ways; one call takes 2 ms, and in wide groups so
    long."""
    run = healthy()
    assert not isinstance(run.layers, Missing)
    weight, made = (64, 2, 3, 3), Site("model.py", 9, "__init__")
    layer = replace(run.layers.layers[0], name="block.a", kind="Conv2d", leaf=True, made_at=made, weight_shape=weight)
    timings = (GroupsTiming(weight, 32, 2.0, 2.0, wide_ms), GroupsTiming(weight, 32, 4.0, 2.0, wide_ms))
    use = LibraryUse((CONVOLUTION,), (), ())
    return with_(run, library_use=use, layers__layers=(layer,), ops__groups_timings=timings)


def _made_again(way: str, took_ms: float, **shapes: Any) -> Evidence:
    run = healthy()
    assert not isinstance(run.layers, Missing)
    made = Site("model.py", 9, "along_time")
    layer = replace(run.layers.layers[0], name="block.a", kind="Conv2d", leaf=True, made_at=made, **shapes)
    ways = PassWays(10.0, ((way, took_ms),))
    return with_(run, library_use=LibraryUse((CONVOLUTION,), (), ()), layers__layers=(layer,), ops__ways=ways)


def channels_first(saved: float = 10.0, **changes: Any) -> Evidence:
    """On a CPU: operators on images of 30 ms a step, that would save so many of them with the channels last."""
    timings = (
        LayoutTiming("convolution_backward", "[32, 16, 32, 32]", 10.0, 10.0 - saved / 2, 20.0),
        LayoutTiming("max_pool2d_with_indices", "[32, 16, 32, 32]", 5.0, 5.0, 10.0),
    )
    run = healthy()
    assert not isinstance(run.layers, Missing)
    model = replace(run.layers.layers[0], name="", made_at=Site("train.py", 12, "main"))
    use = LibraryUse((CONVOLUTION,), (), (), layout_timings=timings)
    return with_(run, library_use=use, **{"layers__layers": (model,), **changes})
