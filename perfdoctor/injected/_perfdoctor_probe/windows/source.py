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


def function_node(code):
    """The node of a function; None where it is not the only one that begins there."""
    tree = parsed(code.co_filename)
    kind = ast.GeneratorExp if code.co_name == "<genexpr>" else ast.FunctionDef
    found = [
        node
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, kind)
        and getattr(node, "name", "<genexpr>") == code.co_name
        and min(one.lineno for one in (node, *getattr(node, "decorator_list", ()))) == code.co_firstlineno
    ]
    return found[0] if len(found) == 1 else None


def given_at(file: str, line: int, words: tuple) -> int:
    """The line that computes what a call at `line` is given: by one of these keywords or as its second argument, where
    that is a name which the function around has set before. `line` itself otherwise."""
    tree = parsed(file)
    around = [tree] if tree is not None else []
    names = set()
    for node in ast.walk(tree) if tree is not None else ():
        if not getattr(node, "lineno", line + 1) <= line <= (getattr(node, "end_lineno", None) or 0):
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            around.append(node)
        elif isinstance(node, ast.Call):
            given = [one.value for one in node.keywords if one.arg in words] or node.args[1:2]
            names.update(one.id for one in given if isinstance(one, ast.Name))
    innermost = max(around, key=lambda node: getattr(node, "lineno", 0), default=None)
    sets = [
        node.lineno
        for node in (nodes_within(innermost) if innermost is not None else ())
        if isinstance(node, ast.Assign) and node.lineno < line
        if any(isinstance(target, ast.Name) and target.id in names for target in node.targets)
    ]
    return max(sets, default=line)


def nodes_within(function, leaves_out=lambda node: False):
    """The nodes of a function, and not of those that are defined in it, nor what lies in one that `leaves_out`."""
    nodes = list(function.body)
    while nodes:
        node = nodes.pop()
        yield node
        apart = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda))
        if not apart and not leaves_out(node):
            nodes.extend(ast.iter_child_nodes(node))


def first_loop(code) -> int:
    """The line of a function's first loop; its own where it has none, or cannot be read."""
    function = function_node(code)
    loops = nodes_within(function) if isinstance(function, ast.FunctionDef) else ()
    return min((node.lineno for node in loops if isinstance(node, (ast.For, ast.While))), default=code.co_firstlineno)
