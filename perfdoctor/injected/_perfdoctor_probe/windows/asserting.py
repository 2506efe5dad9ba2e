"""Statements that test tensors: an `assert`, or a search for NaN and infinity, by the source of a line."""

import ast

from .source import parsed

_TESTS = frozenset(("isnan", "isinf", "isfinite"))
"""Functions of torch, NumPy and `math`, and methods of tensors."""


def purpose(file: str, line: int) -> str:
    """What a line that reads a tensor does so for: `assert`, `nan_test`, or "" for anything else."""
    tree = parsed(file)
    found = ""
    for node in ast.walk(tree) if tree is not None else ():
        if not getattr(node, "lineno", line + 1) <= line <= (node.end_lineno or 0):
            continue
        if isinstance(node, ast.Assert):
            return "assert"
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            found = "nan_test" if name in _TESTS else found
    return found
