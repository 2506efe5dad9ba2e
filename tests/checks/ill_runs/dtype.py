"""Runs with slow types."""

from __future__ import annotations

from typing import Any

from samples import healthy, on_gpu, with_

from perfdoctor.evidence.model import CallSite, DtypeTiming, Evidence, Op, Site, SubnormalNumbers

_SHAPES = "[32, 512] [512, 512]"
BACKWARD_LINE = Site("train.py", 51, "train")


def slow_type(dtype: str, profiled_ms: float = 20.0, ratio: float | None = 2.2, **changes: Any) -> Evidence:
    """All products in one type, profiled for so long a step; `ratio` over float32 was measured."""
    timing = () if ratio is None else (DtypeTiming("mm", _SHAPES, dtype, 1.0, 1.0 / ratio),)
    return with_(
        healthy(),
        **{
            "ops__ops": (
                Op("mm", dtype, _SHAPES, profiled_ms, profiled_ms, profiled_ms, 4e8),
                Op("add", "float32", "[512]", 10.0, 1.0, 1.0, 1e6),
            ),
            "ops__self_ms_per_step": max(22.0, profiled_ms + 1.0),
            "ops__self_ms_by_dtype": ((dtype, profiled_ms), ("float32", max(1.0, 22.0 - profiled_ms))),
            "ops__timings": timing,
            "precision__parameter_dtypes": ((dtype, 1_000_000),),
            "precision__batch_dtypes": (dtype,),
            "call_sites": (CallSite("float64", Site("train.py", 40, "forward"), 10.0, 5.0),),
            **changes,
        },
    )


def faded(**changes: Any) -> Evidence:
    """Gradients that vanish: 15 of the 25 ms."""
    seen = SubnormalNumbers(
        ops_ms=22.0,
        met_ms=18.0,
        forward_ms=1.0,
        backward_ms=10.0,
        optimizer_ms=4.0,
        share=0.3,
        operators=("mm", "_foreach_lerp_"),
        at=BACKWARD_LINE,
    )
    return with_(healthy(), subnormals=with_(seen, **changes))


def float64_on_gpu(share: float = 0.5) -> Evidence:
    ops = (
        Op("mm", "float64", _SHAPES, 8.0, 0.2, 0.2, share * 1e9),
        Op("mm", "float32", _SHAPES, 8.0, 0.2, 0.2, (1 - share) * 1e9),
    )
    return on_gpu(ops__ops=ops, ops__device_busy_ms=20.0)


def idle_tensor_cores(share: float = 0.3, **changes: Any) -> Evidence:
    """float32 products that take this share of the step at the H100's 67 TFLOP/s."""
    flops = share * 25e-3 * 67e12
    return on_gpu(
        **{
            "precision__tf32_matmul": False,
            "ops__ops": (Op("mm", "float32", "[4096, 4096] [4096, 4096]", 8.0, 0.1, 0.1, flops),),
            **changes,
        }
    )


def bfloat16_beside(half_ms: float = 0.5, convert_ms: float = 0.1, **changes: Any) -> Evidence:
    """A CPU that multiplies bfloat16, and products of 1 ms in float32 that take 20 ms of 25."""
    timing = DtypeTiming("mm", _SHAPES, "float32", 1.0, 1.0, half_ms, convert_ms)
    return with_(
        healthy(),
        **{
            "precision__bf16_native": True,
            "ops__ops": (Op("mm", "float32", _SHAPES, 20.0, 20.0, 20.0, 4e8),),
            "ops__self_ms_per_step": 20.0,
            "ops__self_ms_by_dtype": (("float32", 20.0),),
            "ops__timings": (timing,),
            **changes,
        },
    )


def needless_scaler(cost_ms: float = 1.0, **changes: Any) -> Evidence:
    scaling = Op("_amp_foreach_non_finite_check_and_unscale_", "float32", "[512]", 1.0, cost_ms, cost_ms, 0.0)
    return with_(
        healthy(),
        **{
            "ops__ops": (*healthy().ops.ops, scaling),
            "precision__grad_scaler": True,
            "precision__grad_scaler_site": Site("train.py", 9, "main"),
            "precision__autocast_dtype": "bfloat16",
            **changes,
        },
    )


def conversions(cost_ms: float = 5.0, *kinds: str, **changes: Any) -> Evidence:
    kinds = kinds or ("float32->float64", "float64->float32")
    calls = tuple(
        CallSite("convert", Site("train.py", 50 + i, "forward"), 4.0, cost_ms / len(kinds), kind)
        for i, kind in enumerate(kinds)
    )
    return with_(healthy(), **{"call_sites": calls, **changes})
