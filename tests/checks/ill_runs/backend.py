"""Runs with a device or library that is not used."""

from __future__ import annotations

from typing import Any

from samples import H100, healthy, with_

from perfdoctor.evidence.model import Evidence, LibraryTiming, Op, PciGpu


def beside_a_gpu(flops: float = 4e10, **changes: Any) -> Evidence:
    """A job on the CPU of a machine with an H100, its driver, and a torch that could use it."""
    product = Op("addmm", "float32", "[512] [32, 512] [512, 512]", 8.0, 18.0, 18.0, flops)
    return with_(
        healthy(),
        **{
            "machine__gpus": (H100,),
            "machine__gpu_nodes": 1,
            "machine__cuda_driver": (12, 8),
            "machine__pci_gpus": (PciGpu("nvidia", "0x2330", "nvidia"),),
            "backend__cuda": "12.6",
            "backend__arch_list": ("sm_80", "sm_90"),
            "ops__ops": (product,),
            **changes,
        },
    )


_CONVOLUTION = "[16, 32, 32, 32] [32, 32, 3, 3] [32]"


def without_onednn(share: float = 0.8, ratio: float | None = 3.4, **changes: Any) -> Evidence:
    """Convolutions that take this share of the operators' time, and so many times what they take in oneDNN."""
    took = share * 22.0
    timing = (
        () if ratio is None else (LibraryTiming("convolution", _CONVOLUTION, "float32", took / 2, took / 2 / ratio),)
    )
    return with_(
        healthy(),
        **{
            "backend__onednn_enabled": False,
            "backend__onednn_between_steps": False,
            "backend__onednn_timings": timing,
            "ops__ops": (
                Op("convolution", "float32", _CONVOLUTION, 2.0, 0.01 * took, took, 2e8),
                Op("_slow_conv2d_forward", "float32", _CONVOLUTION, 2.0, 0.99 * took, 0.99 * took, 0.0),
            ),
            **changes,
        },
    )


def reference_blas(gflops: float = 1.5, **changes: Any) -> Evidence:
    """Products at that rate, with a BLAS that has no kernels."""
    product = Op("addmm", "float32", "[512] [32, 512] [512, 512]", 8.0, 18.0, 18.0, gflops * 18.0 * 1e6)
    return with_(healthy(), **{"backend__blas": "generic", "ops__ops": (product,), **changes})
