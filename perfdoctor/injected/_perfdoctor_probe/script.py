"""What the job's own script says to a trainer: the lines of keywords in its calls.

A trainer makes loaders and steps itself, so that no frame of the job's decides the size of a batch.
"""

import ast
import os
import sys

_LARGEST = 1 << 20
_WORDS = {
    "lightning": {"accumulation": ("accumulate_grad_batches",)},
    "transformers": {
        "accumulation": ("gradient_accumulation_steps",),
        "batch": ("per_device_train_batch_size", "per_gpu_train_batch_size"),
    },
    "accelerate": {"accumulation": ("gradient_accumulation_steps",)},
}
"""By trainer: what is decided, and the keywords that decide it."""


def decided(trainer: str) -> dict:
    """Where the script decides something, as places; empty without such words, or where the script cannot be read."""
    words = _WORDS.get(trainer)
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    if words is None or not isinstance(file, str):
        return {}
    try:
        if os.path.getsize(file) > _LARGEST:
            return {}
        with open(file, "rb") as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return {}
    found: dict = {}
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        for keyword in call.keywords:
            for what, names in words.items():
                if keyword.arg in names:
                    line = keyword.value.lineno
                    found.setdefault(what, (os.path.abspath(file), line, _function(tree, line), None))
    return found


def _function(tree, line: int) -> str:
    """The innermost function around a line."""
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno).name if around else "<module>"
