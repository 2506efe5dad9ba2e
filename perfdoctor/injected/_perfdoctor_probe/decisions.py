"""What the job's own files decide that no hook sees: padding asked of a library, freed memory that is given back, data
that is cut by rank. By their source alone: whether such a line runs is for others to say.
"""

import ast
import functools
import os
import sys

_LARGEST = 1 << 18
"""Bytes of all files that are parsed: about 0.3 s, once."""
_KEYWORDS = {"pad_to_multiple_of": None, "padding": "max_length"}
"""Of calls, with the value that decides; None for any."""
_FUNCTIONS = ("malloc_trim",)
_PARTS = ("array_split", "tensor_split", "chunk", "split")
"""Functions that cut something into as many parts as there are ranks."""
SHARD = "shard"
_SPEAKS_OF = tuple(word.encode() for word in (*_KEYWORDS, *_FUNCTIONS, "rank"))


@functools.lru_cache(maxsize=1)
def decisions(is_library) -> "dict[str, tuple]":
    """Places by name, the first one of each: a keyword's or a function's own, or `shard`."""
    found: "dict[str, tuple]" = {}
    left = _LARGEST
    for file in _files(is_library):
        text = _read(file)
        if len(text) <= left and any(word in text for word in _SPEAKS_OF):
            left -= len(text)
            for name, line, function in _decided(text):
                found.setdefault(name, (file, line, function, None))
    return found


def _files(is_library) -> "list[str]":
    """Of the job's modules, its script first."""
    modules = [sys.modules.get("__main__"), *list(sys.modules.values())]
    files = [getattr(module, "__dict__", {}).get("__file__") for module in modules]
    own = [file for file in files if type(file) is str and file.endswith(".py") and not is_library(file)]
    return list(dict.fromkeys(map(os.path.abspath, own)))


def _read(file: str) -> bytes:
    try:
        if os.path.getsize(file) > _LARGEST:
            return b""
        with open(file, "rb") as source:
            return source.read()
    except OSError:
        return b""


def _decided(text: bytes) -> "list[tuple]":
    """Names, lines and functions, in the order of the source."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return []
    found: "list[tuple]" = []
    _look(tree, "<module>", set(), found)
    return sorted(found, key=lambda one: one[1])


def _look(node, function: str, of_rank: "set[str]", found: list) -> None:
    """Within a node; `of_rank` has the names of the function that are computed from a rank."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        function, of_rank = node.name, set()
    if isinstance(node, ast.Assign) and _is_of_rank(node.value, of_rank):
        of_rank.update(one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name))
    for name, line in _decides(node, of_rank):
        found.append((name, line, function))
    for child in ast.iter_child_nodes(node):
        _look(child, function, of_rank, found)


def _decides(node, of_rank: "set[str]") -> "list[tuple]":
    if isinstance(node, ast.Subscript):
        return [(SHARD, node.lineno)] if _is_shard(node, of_rank) else []
    if not isinstance(node, ast.Call):
        return []
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    found = [(name, node.lineno)] if name in _FUNCTIONS else []
    if name == "range" and _runs_through(node.args, of_rank):
        found.append((SHARD, node.lineno))
    for keyword in node.keywords:
        if keyword.arg in _KEYWORDS and isinstance(keyword.value, ast.Constant):
            wanted, given = _KEYWORDS[keyword.arg], keyword.value.value
            if given == wanted or (wanted is None and given):
                found.append((keyword.arg, keyword.value.lineno))
    return found


def _is_shard(node, of_rank: "set[str]") -> bool:
    """`data[rank * n : (rank + 1) * n]`, `torch.chunk(data, ranks)[rank]`: neighbours stay together."""
    if isinstance(node.slice, ast.Slice):
        return node.slice.step is None and _runs_through((node.slice.lower, node.slice.upper), of_rank)
    cut = getattr(getattr(node.value, "func", None), "attr", "") if isinstance(node.value, ast.Call) else ""
    return cut in _PARTS and _is_of_rank(node.slice, of_rank)


def _runs_through(ends, of_rank: "set[str]") -> bool:
    return len(ends) == 2 and all(end is not None and _is_of_rank(end, of_rank) for end in ends)


def _is_of_rank(node, of_rank: "set[str]") -> bool:
    names = (getattr(one, "id", getattr(one, "attr", "")) for one in ast.walk(node))
    return any(type(name) is str and (name in of_rank or name.lower().endswith("rank")) for name in names)
