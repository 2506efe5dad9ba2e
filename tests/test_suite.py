"""The tests themselves: none passes without having asserted something, and none borrows from another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
FILES = {str(path.relative_to(TESTS)): ast.parse(path.read_text()) for path in sorted(TESTS.rglob("*.py"))}
MODULES = [name for name in FILES if Path(name).name.startswith("test_")]
RAISING = {"raises", "warns", "fail", "validate"}
"""Of pytest, and of jsonschema."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST) -> list[Function]:
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def called(node: ast.AST) -> str:
    """The last name of what is called: `same` of `seen.same()`."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def own(function: Function) -> Iterator[ast.AST]:
    """What runs when the function does, and not only when a function inside it is called."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def asserts(function: Function, helpers: set[str]) -> bool:
    """Whether it asserts by itself, or calls what does."""
    return any(isinstance(node, ast.Assert) or called(node) in RAISING | helpers for node in ast.walk(function))


BESIDE = [name for name in FILES if name not in MODULES and "jobs" not in Path(name).parts]
SHARED = {function.name for name in BESIDE for function in functions(FILES[name]) if asserts(function, set())}
"""Of the modules beside the tests: functions and methods that assert themselves."""


def asserting(module: ast.Module, known: set[str]) -> set[str]:
    """Names of a test module's helpers that assert, also by way of one another or of those that are known to."""
    found = set(known)
    while more := {f.name for f in functions(module) if not f.name.startswith("test_") and asserts(f, found)} - found:
        found |= more
    return found


def test_no_test_passes_without_asserting() -> None:
    silent, leaving = [], []
    for module in MODULES:
        helpers = asserting(FILES[module], SHARED)
        for function in functions(FILES[module]):
            if function.name.startswith("test_"):
                silent += [f"{module}: {function.name}"] * (not asserts(function, helpers))
                leaving += [f"{module}: {function.name}"] * any(isinstance(node, ast.Return) for node in own(function))
    assert silent == []
    assert leaving == [], "a case that asserts nothing is no case"


def imported(tree: ast.Module) -> Iterator[str]:
    """The modules that it imports from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_what_tests_share_lies_beside_them() -> None:
    borrowed = {
        module: [n for n in imported(tree) if n.startswith(("test_", "conftest"))] for module, tree in FILES.items()
    }
    assert {module: names for module, names in borrowed.items() if names} == {}


def test_only_tests_that_launch_read_the_time() -> None:
    """All others are given a clock of their own."""
    reading = [module for module in MODULES if "time" in imported(FILES[module])]
    assert [m for m in reading if not any(getattr(node, "attr", "") == "e2e" for node in ast.walk(FILES[m]))] == []


def test_a_test_that_only_calls_is_told_from_one_that_asserts() -> None:
    source = """
def helper(x): assert x
def by_way_of(x): helper(x)
def test_bare(): assert 1
def test_raising():
    with pytest.raises(ValueError): int("x")
def test_helped(): by_way_of(1)
def test_method(seen): seen.same()
def test_nothing(): print(1)
"""
    tree = ast.parse(source)
    helpers = asserting(tree, {"same"})
    assert [f.name for f in functions(tree) if f.name.startswith("test_") and not asserts(f, helpers)] == [
        "test_nothing"
    ]
