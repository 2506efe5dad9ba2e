"""A check's thresholds with their reasons, read from the source of its `Limits`."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import textwrap
from dataclasses import dataclass
from typing import Any

from .outcomes import Check


@dataclass(frozen=True, slots=True)
class Threshold:
    """One field of a check's limits."""

    name: str
    """As the configuration spells it: `min-share`."""
    value: object
    reason: str
    """The docstring below the field; "" where its source is not there."""


def thresholds(check: Check[Any]) -> tuple[Threshold, ...]:
    """In the order of the fields; none for a check that has no limits."""
    if not dataclasses.is_dataclass(check.limits):
        return ()
    reasons = field_docstrings(type(check.limits))
    return tuple(
        Threshold(field.name.replace("_", "-"), getattr(check.limits, field.name), reasons.get(field.name, ""))
        for field in dataclasses.fields(check.limits)
    )


def field_docstrings(kind: type) -> dict[str, str]:
    """Field name of a dataclass -> the docstring below it, on one line; empty where the source is not there."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError):
        return {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found = {}
    for field, after in itertools.pairwise(body):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
            found[field.target.id] = " ".join(after.value.value.split())
    return found
