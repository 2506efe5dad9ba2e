"""Runs with limited vector extensions."""

from __future__ import annotations

from typing import Any

from samples import healthy, with_

from perfdoctor.evidence.model import Evidence, Op, VectorExtensionTiming, VectorExtensionTimings


def limited(slower: float = 4.0, took: float = 12.0, **changes: Any) -> Evidence:
    """Under ATEN_CPU_CAPABILITY=default; an operator that takes so long a step is so many times slower for it."""
    variables = (("ATEN_CPU_CAPABILITY", "default"),)
    timings = VectorExtensionTimings(
        variables, (VectorExtensionTiming("gelu", "[64, 4096]", "float32", 4.0, 2.0 * slower, 2.0),), 5, "AVX512"
    )
    return with_(
        healthy(),
        **{
            "backend__variables": variables,
            "backend__capability": "DEFAULT",
            "backend__vector_extension_timings": timings,
            "ops__ops": (Op("gelu", "float32", "[64, 4096]", 2.0, took, took, 0.0),),
            **changes,
        },
    )


def masked(**changes: Any) -> Evidence:
    """A virtual machine on Genoa that shows no AVX-512."""
    return with_(healthy(), **{"machine__cpu__flags": ("avx", "avx2", "fma"), "backend__capability": "AVX2", **changes})
