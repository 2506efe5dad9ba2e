"""What `torch.compile` would need here."""

import importlib.util
import os
import shutil
import sys

DYNAMO = "torch._dynamo.utils"


def looked_at() -> "int | None":
    """How many functions Dynamo has looked at, whatever came of it; None where it does not count, or is not loaded."""
    counters = getattr(sys.modules.get(DYNAMO), "counters", None)
    return None if counters is None else counters["frames"]["total"]


def lacking(device: str) -> str:
    """What `torch.compile` needs on this device and this machine lacks; "" where it has all."""
    if device == "cpu":
        name = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
        if shutil.which(name.split()[0]) is None:
            return f"torch.compile needs a C++ compiler on the CPU, and there is no {name}"
    elif device == "cuda" and importlib.util.find_spec("triton") is None:
        return "torch.compile needs Triton on a GPU, and it is not installed"
    return ""
