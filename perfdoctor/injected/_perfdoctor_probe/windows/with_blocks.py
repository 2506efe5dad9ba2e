"""Where something was opened that is around the loop: by the source of the functions that are under way."""

import ast
import sys

from .source import parsed


def opening(sites, *words: str) -> int:
    """The number of the line that names one of `words`: the innermost `with` that is still open, else the first
    statement of the same files that calls it; -1 where no line does."""
    called = -1
    for file, line, function in sites.stack(sys._getframe(1)):
        tree = None if sites.is_library(file) else parsed(file)
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.With):
                is_open = node.lineno <= line <= (node.end_lineno or 0)
                if is_open and any(_names(item.context_expr, words) for item in node.items):
                    return sites.number((file, node.lineno, function, None))
            elif called < 0 and _calls(node, words):
                called = sites.number((file, node.lineno, "<module>", None))
    return called


def _calls(node, words: "tuple[str, ...]") -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _names(node.value.func, words)


def _names(expression, words: "tuple[str, ...]") -> bool:
    nodes = list(ast.walk(expression))
    named = {node.id for node in nodes if isinstance(node, ast.Name)}
    return not named.union(node.attr for node in nodes if isinstance(node, ast.Attribute)).isdisjoint(words)
