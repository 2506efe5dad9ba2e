"""The job's own files, parsed."""

import ast
import functools
import linecache


@functools.lru_cache(maxsize=8)
def parsed(file: str):
    """None where the source is gone, or none."""
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return None


def called(node) -> str:
    """The name of the function that a call calls, without what it is an attribute of; "" for anything else."""
    function = node.func if isinstance(node, ast.Call) else None
    return getattr(function, "id", getattr(function, "attr", ""))
