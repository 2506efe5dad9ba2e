"""Torch's settings, read once at the second step boundary: by then the job has made up its mind."""

import _tracemalloc
import ctypes
import gc
import os
import sys

import torch

from . import affinity, procfs, records
from .compiler import lacking

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
    return {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cwd": os.getcwd(),
        "environment": environment(),
    }


def parameters(optimizer) -> dict:
    """Elements of what the optimizer updates, by type and by device, most first."""
    dtypes: "dict[str, int]" = {}
    devices: "dict[str, int]" = {}
    for group in optimizer.param_groups if optimizer is not None else ():
        for parameter in group["params"]:
            dtype, device = str(parameter.dtype)[6:], str(parameter.device)
            dtypes[dtype] = dtypes.get(dtype, 0) + parameter.numel()
            devices[device] = devices.get(device, 0) + parameter.numel()
    return {"dtypes": _most_first(dtypes), "devices": _most_first(devices)}


def _most_first(counts: "dict[str, int]") -> list:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def parameter_shapes(optimizer) -> "set[tuple]":
    """Of what the optimizer updates."""
    return {tuple(parameter.shape) for group in optimizer.param_groups for parameter in group["params"]}


def torch_settings(optimizer, seen: dict) -> dict:
    """Threads, types, libraries, devices. Asks CUDA only if the job has initialised it (asking would poison a fork).

    `seen`: what hooks have noted of the same name in `Probe` by now.
    """
    held, found = parameters(optimizer), procfs.libraries()
    facts = {
        "precision": {
            "default_dtype": str(torch.get_default_dtype())[6:],
            "parameter_dtypes": held["dtypes"],
            "parameter_devices": sorted(device for device, _ in held["devices"]),
            "autocast_dtype": seen["autocast"],
            "grad_scaler": "scaler" in seen["sites"],
            "grad_scaler_site": seen["sites"].get("scaler"),
            "double_site": seen["sites"].get("double"),
            **native("bf16"),
            **native("fp16"),
        },
        "threads": {
            "intra_op": torch.get_num_threads(),
            "inter_op": torch.get_num_interop_threads(),
            "openmp_runtimes": found["pools"],
            "set_at": seen["sites"].get("threads"),
            "affinity_cpus": len(affinity.cpus()),
            "pinned_at": seen["sites"].get("pinned"),
        },
        "backend": {**_backend(seen), "parameters_by_device": held["devices"]},
        "environment": environment(),
        "allocator": found["allocator"],
        "gc_enabled": gc.isenabled(),
        "frameworks": [name for name in _FRAMEWORKS if name in sys.modules],
        "trainer": trainer(),
        "options": [{"name": name, "site": site} for name, site in seen["options"].items()],
        "tracer": tracer(),
        "traced_frames": _tracemalloc.get_traceback_limit() if _tracemalloc.is_tracing() else 0,
        "traced_at": seen["sites"].get("tracemalloc"),
        "python_options": sorted(sys._xoptions),
        "cpus": affinity.cpus(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "deterministic_at": seen["sites"].get("deterministic"),
        "compiled_at": seen["sites"].get("compile"),
        "compile_lacks": lacking("cuda" if torch.cuda.is_initialized() else "cpu"),
    }
    if torch.cuda.is_initialized():
        device = torch.cuda.current_device()
        facts["precision"]["compute_capability"] = torch.cuda.get_device_capability(device)
        facts["precision"]["tf32_matmul"] = tf32_matmul()
        facts["cuda"] = {
            "total_bytes": torch.cuda.get_device_properties(device).total_memory,
            "allocator": torch.cuda.memory.get_allocator_backend(),
        }
        facts["cudnn"] = {
            **_cudnn(),
            "enabled_in_forward": seen["cudnn"],
            "enabled_at": seen["sites"].get("cudnn.enabled"),
            "benchmark_at": seen["sites"].get("cudnn.benchmark"),
            "deterministic_at": seen["sites"].get("cudnn.deterministic"),
        }
    return facts


def tf32_matmul() -> bool:
    """Whether products in float32 may use TF32."""
    matmul = torch.backends.cuda.matmul
    # By the new name where there is one (torch 2.9): the legacy getter raises once a job has used it.
    precision = getattr(matmul, "fp32_precision", None)
    return bool(matmul.allow_tf32) if precision is None else precision == "tf32"


def _cudnn() -> dict:
    """Only once the job has initialised CUDA. Asking for the version loads cuDNN, which the job has done or will."""
    backend = torch.backends.cudnn
    facts = {
        "available": bool(backend.is_available()),
        "enabled": bool(torch._C._get_cudnn_enabled()),
        "benchmark": bool(torch._C._get_cudnn_benchmark()),
        "deterministic": bool(torch._C._get_cudnn_deterministic()),
    }
    try:
        facts["version"] = backend.version()
    except (AttributeError, RuntimeError) as error:  # "cuDNN version incompatibility", a GPU that it does not know
        facts["error"] = str(error)[:300]
    return facts


def trainer() -> str:
    """Whose training loop this is; "" for the job's own. A library that is only imported says nothing."""
    modules = sys.modules
    if "lightning.pytorch" in modules or "pytorch_lightning" in modules:
        return "lightning"
    if "transformers.trainer" in modules:
        return "transformers"
    state = modules.get("accelerate.state")
    return "accelerate" if state is not None and state.AcceleratorState._shared_state else ""


def trainer_options():
    """What a Trainer of transformers was given, with its options as attributes; None where another trains. Looks
    through all objects, since the locals of its frames would keep a batch alive."""
    if trainer() != "transformers":
        return None
    kind = sys.modules["transformers.training_args"].TrainingArguments
    of_age = (one for generation in (2, 1, 0) for one in gc.get_objects(generation))
    return next((one for one in of_age if issubclass(type(one), kind)), None)


def tracer() -> str:
    """Whose function Python calls for every line or call of this thread: a package, or the job's own by its name; ""
    without one."""
    traced = sys.gettrace() or sys.getprofile()
    if traced is None:
        return _monitor()
    module = getattr(traced, "__module__", None) or type(traced).__module__
    name = getattr(traced, "__qualname__", None) or type(traced).__qualname__
    return name if module == "__main__" else module.partition(".")[0]


def _monitor() -> str:
    """What watches Python's calls by `sys.monitoring`, which Python 3.12 has."""
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None:
        return ""
    tools = (monitoring.DEBUGGER_ID, monitoring.COVERAGE_ID, monitoring.PROFILER_ID)
    return next(filter(None, map(monitoring.get_tool, tools)), "")


def _backend(seen: dict) -> dict:
    """What this build computes with. Nothing here initialises a device: that would poison a later fork."""
    between = bool(torch.backends.mkldnn.enabled)
    enabled = between and seen["onednn"] is not False
    blas = torch.__config__.show().partition("BLAS_INFO=")[2].partition(",")[0]
    facts = {
        "cuda": torch.version.cuda or "",
        "hip": torch.version.hip or "",
        "arch_list": [],
        "blas": blas.strip() or ("mkl" if torch.backends.mkl.is_available() else ""),
        "onednn_built": bool(torch.backends.mkldnn.is_available()),
        "onednn_enabled": enabled,
        "onednn_between_steps": between,
        # A line that was noted may have switched it off for a moment, before the steps.
        "onednn_off_at": None if enabled else seen["sites"].get("onednn"),
        "acl": False,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "mkl_branch": _mkl_branch(),
        "xpu_built": False,
        "mps_available": bool(torch.backends.mps.is_available()),
        "data_parallel": seen["data_parallel"],
    }
    for name, ask in (
        ("acl", lambda: bool(torch.backends.mkldnn.is_acl_available())),
        ("xpu_built", lambda: bool(torch.xpu._is_compiled())),
        # Since 2.1 a plain string of the build; torch.cuda.get_arch_list() of older versions asks for devices.
        ("arch_list", lambda: (torch._C._cuda_getArchFlags() or "").split() if torch.version.cuda else []),
    ):
        try:
            facts[name] = ask()
        except (AttributeError, RuntimeError):  # a build or version without it
            pass
    return facts


def _mkl_branch() -> int:
    """What MKL makes of MKL_CBWR, which it reads when it is first used and not when torch is imported: 3 is COMPATIBLE,
    1 and 2 limit nothing. Asked only where the variable is set, since asking is a first use; 0 without an answer."""
    if "MKL_CBWR" not in os.environ:
        return 0
    try:
        library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
        return library.mkl_serv_cbwr_get(1)
    except (OSError, AttributeError):  # another system's library, a build without MKL
        return 0


def onednn_enabled() -> bool:
    """Now, which inside `torch.backends.mkldnn.flags()` is not what it is outside."""
    return bool(torch._C._get_mkldnn_enabled())


def cudnn_enabled() -> bool:
    """The same of cuDNN; a switch of torch's, no question to the device."""
    return bool(torch._C._get_cudnn_enabled())


def native(kind: str) -> dict:
    """What oneDNN says of this CPU (it honours ONEDNN_MAX_CPU_ISA), together with the CPU's own flags."""
    try:
        supported = bool(getattr(torch.ops.mkldnn, f"_is_mkldnn_{kind}_supported")())
        flags = torch.cpu.get_capabilities()
    except (AttributeError, RuntimeError):
        return {}
    has = flags.get(f"avx512_{kind}") or flags.get(f"amx_{kind}") or flags.get(f"arm_{kind}")
    return {f"{kind}_native": supported and bool(has)}


def cuda_counters() -> dict:
    """Allocator statistics of the current device; empty while CUDA is not initialised. About 60 us."""
    if not torch.cuda.is_initialized():
        return {}
    stats = torch.cuda.memory_stats()
    names = {
        "alloc_retries": "num_alloc_retries",
        "device_allocs": "num_device_alloc",
        "peak_allocated_bytes": "allocated_bytes.all.peak",
        "peak_reserved_bytes": "reserved_bytes.all.peak",
        "allocated_bytes": "allocated_bytes.all.current",
        "reserved_bytes": "reserved_bytes.all.current",
    }
    return {"cuda": {name: int(stats.get(theirs, 0)) for name, theirs in names.items()}}


class NotCompiled:
    """Inside a compiled function Dynamo would look at every new frame, torch's own that we call included."""

    def __enter__(self) -> None:
        self.used = "torch._dynamo" in sys.modules
        if self.used:
            self.before = torch._C._dynamo.eval_frame.set_eval_frame(None)

    def __exit__(self, *_) -> None:
        if self.used:
            torch._C._dynamo.eval_frame.set_eval_frame(self.before)
