"""Torch's settings, read once at the second step boundary: by then the job has made up its mind."""

import os
import sys

import torch

from . import affinity, procfs, records

_FRAMEWORKS = (
    "lightning",
    "pytorch_lightning",
    "transformers",
    "accelerate",
    "deepspeed",
    "ray",
    "ignite",
    "fastai",
)


def environment() -> dict:
    """The allow-listed variables that are set."""
    return {name: os.environ[name] for name in records.ENVIRONMENT if name in os.environ}


def imported() -> dict:
    """For the `torch` record, right after the import; must not touch CUDA or start thread pools."""
    main = sys.modules.get("__main__")
    return {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cpus": len(affinity.cpus()),
        "script": getattr(main, "__file__", None) or "",
        "cwd": os.getcwd(),
        "environment": environment(),
    }


def parameters(optimizer) -> dict:
    """Types and devices of what the optimizer updates, with element counts."""
    dtypes: "dict[str, int]" = {}
    devices: "dict[str, int]" = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            dtype = str(parameter.dtype)[6:]
            dtypes[dtype] = dtypes.get(dtype, 0) + parameter.numel()
            device = str(parameter.device)
            devices[device] = devices.get(device, 0) + parameter.numel()
    first = optimizer.param_groups[0]
    return {
        "optimizer": type(optimizer).__name__,
        "foreach": first.get("foreach"),
        "fused": first.get("fused"),
        "dtypes": dtypes,
        "devices": sorted(devices),
        "device_elements": devices,
    }


def parameter_shapes(optimizer) -> "set[tuple]":
    """Of what the optimizer updates."""
    return {tuple(parameter.shape) for group in optimizer.param_groups for parameter in group["params"]}


def torch_settings() -> dict:
    """Threads, types, backends. Asks CUDA only if the job has initialised it (asking would poison a fork)."""
    facts = {
        "intra_op": torch.get_num_threads(),
        "inter_op": torch.get_num_interop_threads(),
        "os_threads": procfs.os_threads(),
        "cpus": len(affinity.cpus()),
        "default_dtype": str(torch.get_default_dtype())[6:],
        "capability": torch.backends.cpu.get_cpu_capability(),
        "mkldnn": bool(torch.backends.mkldnn.enabled),
        "bf16_native": _native("bf16"),
        "fp16_native": _native("fp16"),
        "anomaly": torch.is_anomaly_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "frameworks": [name for name in _FRAMEWORKS if name in sys.modules],
        "trainer": _trainer(),
        **procfs.libraries(),
        "environment": environment(),
        "libraries": _libraries(),
    }
    if torch.cuda.is_initialized():
        device = torch.cuda.current_device()
        facts["cuda"] = {
            "name": torch.cuda.get_device_name(device),
            "capability": list(torch.cuda.get_device_capability(device)),
            "total_bytes": torch.cuda.get_device_properties(device).total_memory,
            # Only the new names: the legacy getters raise once a job has used these.
            "tf32_matmul": torch.backends.cuda.matmul.fp32_precision == "tf32",
            "allocator": torch.cuda.memory.get_allocator_backend(),
        }
        facts["cudnn"] = _cudnn()
    return facts


def _cudnn() -> dict:
    """Only once the job has initialised CUDA. Asking for the version loads cuDNN, which the job has done or will."""
    backend = torch.backends.cudnn
    facts = {
        "available": bool(backend.is_available()),
        "enabled": bool(torch._C._get_cudnn_enabled()),
        "benchmark": bool(torch._C._get_cudnn_benchmark()),
        "deterministic": bool(torch._C._get_cudnn_deterministic()),
        "flash_attention": bool(torch._C._get_flash_sdp_enabled() or torch._C._get_mem_efficient_sdp_enabled()),
    }
    try:
        facts["version"] = backend.version()
        facts["benchmark_limit"] = int(torch._C._cuda_get_cudnn_benchmark_limit())
    except (AttributeError, RuntimeError) as error:  # "cuDNN version incompatibility", a GPU that it does not know
        facts["error"] = str(error)[:300]
    return facts


def _trainer() -> str:
    """Whose training loop this is; "" for the job's own. A library that is only imported says nothing."""
    modules = sys.modules
    if "lightning.pytorch" in modules or "pytorch_lightning" in modules:
        return "lightning"
    if "transformers.trainer" in modules:
        return "transformers"
    state = modules.get("accelerate.state")
    return "accelerate" if state is not None and state.AcceleratorState._shared_state else ""


def _libraries() -> dict:
    """What this build computes with. Nothing here initialises a device: that would poison a later fork."""
    info = {
        "mkl": bool(torch.backends.mkl.is_available()),
        "onednn": bool(torch.backends.mkldnn.is_available()),
        "mps": bool(torch.backends.mps.is_available()),
    }
    blas = torch.__config__.show().partition("BLAS_INFO=")[2].partition(",")[0]
    info["blas"] = blas.strip() or ("mkl" if info["mkl"] else "")
    for name, ask in (
        ("acl", lambda: bool(torch.backends.mkldnn.is_acl_available())),
        ("xpu", lambda: bool(torch.xpu._is_compiled())),
        # Since 2.1 a plain string of the build; torch.cuda.get_arch_list() of older versions asks for devices.
        ("arch_list", lambda: (torch._C._cuda_getArchFlags() or "").split() if torch.version.cuda else []),
    ):
        try:
            info[name] = ask()
        except (AttributeError, RuntimeError):  # a build or version without it
            pass
    return info


def onednn_enabled() -> bool:
    """Now, which inside `torch.backends.mkldnn.flags()` is not what it is outside."""
    return bool(torch._C._get_mkldnn_enabled())


def cudnn_enabled() -> bool:
    """The same of cuDNN; a switch of torch's, no question to the device."""
    return bool(torch._C._get_cudnn_enabled())


def _native(kind: str) -> "bool | None":
    """What oneDNN says of this CPU (it honours ONEDNN_MAX_CPU_ISA), together with the CPU's own flags."""
    try:
        supported = bool(getattr(torch.ops.mkldnn, f"_is_mkldnn_{kind}_supported")())
        flags = torch.cpu.get_capabilities()
    except (AttributeError, RuntimeError):
        return None
    return supported and bool(flags.get(f"avx512_{kind}") or flags.get(f"amx_{kind}") or flags.get(f"arm_{kind}"))


def cuda_counters() -> dict:
    """Allocator statistics of the current device; empty while CUDA is not initialised. About 60 us."""
    if not torch.cuda.is_initialized():
        return {}
    stats = torch.cuda.memory_stats()
    names = (
        "num_alloc_retries",
        "num_device_alloc",
        "num_device_free",
        "num_ooms",
        "allocated_bytes.all.peak",
        "reserved_bytes.all.peak",
        "inactive_split_bytes.all.current",
    )
    return {"cuda": {name: int(stats.get(name, 0)) for name in names}}
