"""What the job's own script says to a trainer: the lines of keywords in its calls, and of options given otherwise.

A trainer makes loaders and steps itself, so that no frame of the job's decides the size of a batch.
"""

import ast
import os
import sys

_LARGEST = 1 << 20
_WORDS = {
    "lightning": (
        "accumulate_grad_batches val_check_interval check_val_every_n_epoch every_n_train_steps every_n_epochs "
        "detect_anomaly profiler deterministic precision"
    ).split(),
    "transformers": (
        "gradient_accumulation_steps per_device_train_batch_size per_gpu_train_batch_size per_device_eval_batch_size "
        "eval_steps eval_strategy save_steps save_strategy debug train_sampling_strategy group_by_length "
        "gradient_checkpointing full_determinism compute_metrics dataloader_num_workers dataloader_persistent_workers"
    ).split(),
    "accelerate": ["gradient_accumulation_steps", "dispatch_batches"],
}
"""By trainer: keywords that decide what it does in each step or between two."""
_COUNTS_FOR = {"save_steps": "save_strategy", "eval_steps": "eval_strategy"}
"""What decides nothing where this one is not "steps"."""


def options(trainer: str, as_they_are=None, settled=None) -> dict:
    """Where the script gives them, as places by keyword; empty without any, or where the script cannot be read.

    `as_they_are`: an object that has them as attributes. What is given a constant that it does not have is in a branch
    that was not taken. `settled`: gives, for a file and something that is computed in it, the file and the constant
    that this comes from, None without one.
    """
    words = _WORDS.get(trainer)
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    tree = parsed(read(file, _LARGEST)) if words is not None and isinstance(file, str) else None
    if tree is None:
        return {}
    found: dict = {}
    for word, value in (pair for node in ast.walk(tree) for pair in given(node)):
        if word in words and word not in found and _counts(word, value, as_they_are):
            constant = None if settled is None or isinstance(value, ast.Constant) else settled(file, value)
            if constant is None:
                found[word] = _place(tree, file, value)
            elif _counts(word, constant[1], as_they_are):
                where = tree if constant[0] == file else parsed(read(constant[0], _LARGEST))
                found[word] = _place(where, *constant)
            elif not _is_off(constant[1]):  # it comes from elsewhere
                found[word] = _place(tree, file, value)
    return found


def _place(tree, file: str, node) -> tuple:
    return os.path.abspath(file), node.lineno, function_at(tree, node.lineno), None


def given(node) -> "list[tuple]":
    """Names and values that this part of the script gives: as keywords of a call, or, for a call with `**options` and
    for an object that is there, as `options["name"] = value`, `args.name = value` and in a dictionary; as defaults of a
    class (of `TrainingArguments`, say) with `name: str = value`."""
    if isinstance(node, ast.Call):
        return [(keyword.arg, keyword.value) for keyword in node.keywords]
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values)
        return [(key.value, value) for key, value in pairs if isinstance(key, ast.Constant)]
    if isinstance(node, ast.ClassDef):
        fields = [one for one in node.body if isinstance(one, ast.AnnAssign) and one.value is not None]
        return [(one.target.id, one.value) for one in fields if isinstance(one.target, ast.Name)]
    found = []
    for target in node.targets if isinstance(node, ast.Assign) else ():
        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
            found.append((target.slice.value, node.value))
        elif isinstance(target, ast.Attribute):
            found.append((target.attr, node.value))
    return found


def _counts(word: str, value, as_they_are) -> bool:
    """Whether that this is given decides anything."""
    strategy = getattr(as_they_are, _COUNTS_FOR.get(word, ""), "steps")
    is_there = not _is_off(value) and not _is_other(value, getattr(as_they_are, word, None))
    return is_there and getattr(strategy, "value", strategy) == "steps"


def _is_off(value) -> bool:
    return isinstance(value, ast.Constant) and (value.value is None or value.value is False)


def _is_other(value, actual) -> bool:
    """Whether a constant is not what an option is; of those that are read into something else nothing is known."""
    actual = getattr(actual, "value", actual)
    return isinstance(value, ast.Constant) and type(value.value) is type(actual) and value.value != actual


def read(file: str, largest: int) -> bytes:
    """A source; nothing of one that cannot be read or has more bytes."""
    try:
        if os.path.getsize(file) > largest:
            return b""
        with open(file, "rb") as source:
            return source.read()
    except OSError:
        return b""


def parsed(text: bytes):
    """None of what is no Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def function_at(tree, line: int) -> str:
    """The innermost function around a line."""
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno).name if around else "<module>"
