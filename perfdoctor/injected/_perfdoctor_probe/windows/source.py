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
