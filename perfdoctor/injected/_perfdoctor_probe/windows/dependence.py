"""Whether an iteration needs what the one before it made, read from the source.

The body of a loop is gone through once, statement by statement, and for every name it is noted which names, as they
were when the iteration began, its value comes from. A name whose value comes from itself, by way of others or not, is
carried from one iteration to the next: what is made from it can only be made one after another.

Sums, products, appended and indexed results come from themselves too, but nothing is made from them on the way: such a
name is marked (`+~total`), and counts as carried only if something in the body reads it and goes back into it.
"""

import ast

_STATEFUL = {"step", "reset", "tick", "advance"}
"""Methods that leave their object in another state although their result is used: environments and simulators."""
_HARMLESS = {
    "train",
    "eval",
    "zero_grad",
    "backward",
    "requires_grad_",
    "retain_grad",
    "detach_",
    "to",
    "cuda",
}
"""Methods whose object computes as before, for all that a loop can see."""
_COLLECTS = {"append", "appendleft", "extend", "insert", "add", "update", "put", "add_", "sub_", "index_add_", "write"}
"""Methods that add to their object."""
_REPLACES = {"copy_", "fill_", "zero_", "clear"}
"""Methods after which nothing of their object is left."""
_COMBINES = {"max", "min", "maximum", "minimum", "cat", "concat", "concatenate", "vstack", "hstack", "append", "add"}
"""Functions that take a result so far and one more."""
_KINDS = {ast.Mult: "*", ast.Div: "*"}
"""Of what is no sum. Sums and products of the same name are a recurrence."""
_KEPT = "?"
"""The mark of what one branch leaves as it was."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def imported(tree) -> "set[str]":
    """Names that stand for modules and what comes from them."""
    return {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }


def methods(owner) -> "dict[str, tuple[set, set]]":
    """Attributes of `self` that each method of a class reads and those that it sets."""
    found = {}
    for function in owner.body if owner is not None else ():
        if isinstance(function, _FUNCTIONS):
            # A counter says nothing of what is computed.
            counters = {
                id(node.target)
                for node in ast.walk(function)
                if isinstance(node, ast.AugAssign) and isinstance(node.value, ast.Constant)
            }
            of_self = [
                (path, node)
                for node in ast.walk(function)
                if isinstance(node, ast.Attribute) and id(node) not in counters and (path := _path(node))
            ]
            reads = {path for path, node in of_self if path.startswith("self.") and isinstance(node.ctx, ast.Load)}
            sets = {path for path, node in of_self if path.startswith("self.") and isinstance(node.ctx, ast.Store)}
            found[function.name] = reads, sets
    return found


def carried(node, line: int, modules: "set[str]", of_class: dict) -> "list[str]":
    """Names that the statement at `line`, somewhere in the loop or function `node`, needs from the iteration, or call,
    before; empty where the iterations could be computed together."""
    flow = _Flow(node, modules, of_class)
    if isinstance(node, _FUNCTIONS):
        every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
        flow.values.update({one.arg: set() for one in every if one is not None and one.arg != "self"})
        flow.run(node.body)
    elif isinstance(node, ast.While):
        with flow.under(node.test):
            flow.run(node.body)
    elif isinstance(node, COMPREHENSIONS):
        for generator in node.generators:
            flow.assign(generator.target, set())
        made = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        flow.note(node, set().union(*map(flow.reads, made)))
    else:
        flow.assign(node.target, set())
        flow.run(node.body)
    return flow.carried_to(line)


def _path(node) -> str:
    """`self.state`; "" for what is no chain of names."""
    if isinstance(node, ast.Name):
        return node.id
    inner = _path(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{inner}.{node.attr}" if inner else ""


def _base(node) -> "tuple[str, bool]":
    """What an element, or a result of methods called one after another, is of; and whether it is a part of that."""
    part = False
    while isinstance(node, (ast.Subscript, ast.Call)):
        part = part or isinstance(node, ast.Subscript)
        node = node.value if isinstance(node, ast.Subscript) else getattr(node.func, "value", None)
    return _path(node), part


def _unmarked(names) -> "set[str]":
    return {name.rpartition("~")[2] for name in names}


def _related(one: str, other: str) -> bool:
    """Whether they are the same object, or one a part of the other."""
    return one == other or one.startswith(other + ".") or other.startswith(one + ".")


class _Flow:
    """What the names in one iteration come from."""

    def __init__(self, node, modules: "set[str]", of_class: dict) -> None:
        self.modules = modules
        self.of_class = of_class
        self.values: "dict[str, set[str]]" = {}
        """By name, what its value comes from: names at the start of the iteration."""
        self.conditions: "list[set[str]]" = []
        self.statements: "list[tuple[int, int, set[str]]]" = []
        """First and last line, and what it needs."""
        self.own = _own_elements(node)

    # -- the answer

    def carried_to(self, line: int) -> "list[str]":
        """Of the statement at a line: what it needs that comes from itself."""
        feeds = {name: self._feeding(name) for name in self.values}
        into: "dict[str, set[str]]" = {name: set(feeds[name]) for name in feeds}
        for _ in feeds:  # all that leads to each
            for found in into.values():
                found.update(*(into[name] for name in found.copy()))
        recurrent = {name for name, found in into.items() if name in found}
        needs = {
            name
            for first, last, read in self.statements
            if first <= line <= last
            for name in self.values
            if any(_related(name, one) for one in read)
        }
        needed = {name for name in recurrent if name in needs or any(name in into[one] for one in needs)}
        return sorted(needed, key=lambda name: (name not in needs, list(self.values).index(name)))

    def _feeding(self, name: str) -> "set[str]":
        """Names whose value, as one iteration leaves it, goes into this one in the next."""
        read = {one for one in self.values[name] if "~" not in one}
        return {other for other in self.values if any(_related(other, one) for one in read)}

    # -- statements

    def run(self, body) -> None:
        for statement in body:
            self._statement(statement)

    def under(self, test) -> "_Condition":
        """What is decided by a test comes from it; whether something is None is no computation."""
        return _Condition(self, self.reads(test))

    def note(self, node, read: "set[str]", last: int = 0) -> None:
        self.statements.append((node.lineno, last or node.end_lineno, read.union(*self.conditions)))

    def _statement(self, node) -> None:
        if isinstance(node, (ast.For, ast.AsyncFor)):
            read = self.reads(node.iter)
            self.note(node, read, node.iter.end_lineno)
            self.assign(node.target, read)
            self._twice(node.body)
        elif isinstance(node, ast.While):
            self.note(node, self.reads(node.test), node.test.end_lineno)
            with self.under(node.test):
                self._twice(node.body)
        elif isinstance(node, ast.If):
            self.note(node, self.reads(node.test), node.test.end_lineno)
            with self.under(node.test):
                self._branches(node.body, node.orelse)
        elif isinstance(node, ast.Match):
            with self.under(node.subject):
                self._branches(*(case.body for case in node.cases))
        elif isinstance(node, ast.Try):
            self.run(node.body)
            self._branches([], *(handler.body for handler in node.handlers))
            self.run([*node.orelse, *node.finalbody])
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                read = self.reads(item.context_expr)
                if item.optional_vars is not None:
                    self.assign(item.optional_vars, read)
            self.run(node.body)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names = {_path(one) for one in ast.walk(node) if isinstance(one, (ast.Name, ast.Attribute))}
            self.values[node.name] = set().union(*(self._value(name) for name in names if name))
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._assignment(node, target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._assignment(node, node.target, node.value)
        elif isinstance(node, ast.AugAssign):
            read = self.reads(node.value)
            self.note(node, read | {_base(node.target)[0]})
            if isinstance(node.op, ast.MatMult):
                self.assign(node.target, read | self.reads(node.target))
            else:
                self._collect(node.target, read, _KINDS.get(type(node.op), "+"))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._call_for_its_effect(node.value)
        elif isinstance(node, (ast.Expr, ast.Return, ast.Assert, ast.Raise)):
            self.note(node, self.reads(node))

    def _twice(self, body) -> None:
        """A loop inside: what its first iteration makes goes into its second."""
        self.run(body)
        self.run(body)

    def _branches(self, *bodies) -> None:
        before, after = self.values, []
        for body in (*bodies, []) if len(bodies) == 1 else bodies:
            self.values = dict(before)
            self.run(body)
            after.append(self.values)
        self.values = before
        changed = {name for values in after for name in values if values[name] is not before.get(name)}
        kept = {name: self._so_far(name, _KEPT) for name in changed}
        for name in changed:
            self.values[name] = set().union(
                *(
                    values[name] if name in values and values[name] is not before.get(name) else kept[name]
                    for values in after
                )
            )

    def _assignment(self, node, target, value) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            read = [self.reads(one) for one in value.elts]
            self.note(node, set().union(*read))
            for one, tokens in zip(target.elts, read):
                self.assign(one, tokens)
            return
        combined = _combination(ast.unparse(target), value)
        read = self.reads(value) if combined is None else set().union(*map(self.reads, combined[1]))
        self.note(node, read)
        if combined is None:
            self.assign(target, read)
        else:
            self._collect(target, read, combined[0])

    def assign(self, target, read: "set[str]") -> None:
        """`target` is made from what was read and nothing else; an element of it leaves the others as they were."""
        if isinstance(target, (ast.Tuple, ast.List)):
            for one in target.elts:
                self.assign(one, read)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, read)
        elif isinstance(target, ast.Subscript):
            self._collect(target, read | self.reads(target.slice), "+")
        elif path := _path(target):
            self._set(path, read)

    def _set(self, path: str, read: "set[str]") -> None:
        for part in [name for name in self.values if name.startswith(path + ".")]:
            del self.values[part]
        self.values[path] = read.union(*self.conditions)

    def _collect(self, target, read: "set[str]", kind: str) -> None:
        if path := _base(target)[0]:
            # A counter that decides when to stop does not depend on itself.
            self.values[path] = self._so_far(path, kind).union(read, *(c - {path} for c in self.conditions))

    def _so_far(self, path: str, kind: str) -> "set[str]":
        """What a name comes from, with itself marked as carried on and not read."""
        if path not in self.values:
            return {f"{kind}~{path}"} if self._value(path) == {path} else self._value(path)
        return {self._carried_on(one, path, kind) for one in self.values[path]}

    @staticmethod
    def _carried_on(one: str, path: str, kind: str) -> str:
        mark, _, name = one.rpartition("~")
        if name != path or not mark or kind in (mark, _KEPT):
            return one
        return f"{kind}~{path}" if mark == _KEPT else path

    def _call_for_its_effect(self, call) -> None:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        path, part = _base(call.func.value) if name else ("", False)
        if not path or path == "self" or path.partition(".")[0] in self.modules or name in _HARMLESS | _STATEFUL:
            self.note(call, self.reads(call))
            return
        read = set().union(*(self.reads(one) for one in ast.iter_child_nodes(call) if one is not call.func))
        inner = self.reads(call.func.value) if isinstance(call.func.value, ast.Call) else set()
        self.note(call, read | (set() if name in _COLLECTS or part else self._value(path)) | inner)
        if name in _COLLECTS or part:
            self._collect(call.func.value, read | inner, "+")
        elif name in _REPLACES:
            self._set(path, read)
        else:
            self._set(path, read | self._value(path))

    # -- expressions

    def reads(self, node) -> "set[str]":
        """What its value comes from."""
        path = _path(node)
        if path:
            return self._value(path)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            return set()
        if isinstance(node, ast.NamedExpr):
            read = self.reads(node.value)
            self.assign(node.target, read)
            return read
        if isinstance(node, ast.Subscript) and self.own.get(_path(node.value)) == ast.unparse(node.slice):
            return self.reads(node.slice)
        found = set().union(*map(self.reads, ast.iter_child_nodes(node)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found |= self._method(node.func, found)
        return found

    def _method(self, function, read: "set[str]") -> "set[str]":
        """What a call of a method leaves in its object, which its result may come from."""
        owner = _path(function.value)
        if owner == "self" and function.attr in self.of_class:
            reads, sets = self.of_class[function.attr]
            made = read.union(*map(self._value, reads)) if sets else read
            for path in sets:
                self._set(path, made)
            return made
        if function.attr in _STATEFUL and owner and owner != "self" and owner.partition(".")[0] not in self.modules:
            made = read | self._value(owner)
            self._set(owner, made)
            return made
        return set()

    def _value(self, path: str) -> "set[str]":
        parts = path.split(".")
        prefixes = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
        known = next((prefix for prefix in prefixes if prefix in self.values), None)
        found = {path} if known is None else _unmarked(self.values[known])
        return found.union(*(_unmarked(read) for name, read in self.values.items() if name.startswith(path + ".")))


class _Condition:
    """While it is open, all that is made is made under a condition."""

    def __init__(self, flow: _Flow, read: "set[str]") -> None:
        self.flow = flow
        self.read = read

    def __enter__(self) -> None:
        self.flow.conditions.append(self.read)

    def __exit__(self, *_) -> None:
        self.flow.conditions.pop()


def _combination(target: str, value) -> "tuple[str, list] | None":
    """How `value` adds to what `target` holds, and what it adds; None where it makes something else."""
    if isinstance(value, ast.BinOp) and not isinstance(value.op, ast.MatMult):
        kind = _KINDS.get(type(value.op), "+")
        sides = [(value.left, value.right)]
        if isinstance(value.op, (ast.Add, ast.Mult)):
            sides.append((value.right, value.left))
        for one, other in sides:
            if ast.unparse(one) == target:
                return kind, [other]
            inner = _combination(target, one)
            if inner is not None and inner[0] == kind:
                return kind, [*inner[1], other]
    if isinstance(value, ast.Call) and value.args:
        name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        given = [one for given in value.args for one in getattr(given, "elts", [given])]
        if isinstance(value.func, ast.Attribute):
            given.append(value.func.value)
        others = [one for one in given if ast.unparse(one) != target]
        if name in _COMBINES and len(others) == len(given) - 1:
            return name, others
    return None


def _own_elements(node) -> "dict[str, str]":
    """What each iteration sets another element of, by an index that the loop counts: reading that one reads nothing
    that an iteration before has made."""
    varying = {one.id for one in ast.walk(getattr(node, "target", ast.Pass())) if isinstance(one, ast.Name)}
    indices: "dict[str, dict[str, ast.AST]]" = {}
    for one in ast.walk(node):
        if isinstance(one, ast.AugAssign) and isinstance(one.target, ast.Name):
            varying.add(one.target.id)
        elif isinstance(one, ast.Assign) and any(getattr(n, "id", "") in varying for n in ast.walk(one.value)):
            varying |= {n.id for target in one.targets for n in ast.walk(target) if _is_stored_name(n)}
        called = one.value.func if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call) else None
        element = called.value if isinstance(called, ast.Attribute) else one
        if isinstance(element, ast.Subscript) and (element is not one or isinstance(one.ctx, ast.Store)):
            indices.setdefault(_path(element.value), {})[ast.unparse(element.slice)] = element.slice
    return {
        path: text
        for path, found in indices.items()
        for text, index in found.items()
        if path and len(found) == 1 and any(getattr(n, "id", "") in varying for n in ast.walk(index))
    }


def _is_stored_name(node) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
