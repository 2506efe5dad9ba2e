"""Hooks that pile up: registered anew in every step or epoch, and never removed.

Modules, parameters and optimizers keep their hooks in dictionaries, which the census counts as it counts any other.
Their lines are those of the functions that are called ever more often; and the line that registers one is the cause.
Of several hooks of one owner it is also known whether they are the same: one function, bound to the same values.
"""

import functools
import types

import torch

_REGISTERED_BY = {
    "_forward_pre_hooks": "register_forward_pre_hook",
    "_forward_hooks": "register_forward_hook",
    "_backward_pre_hooks": "register_full_backward_pre_hook",
    "_backward_hooks": "register_full_backward_hook",
    "_optimizer_step_pre_hooks": "register_step_pre_hook",
    "_optimizer_step_post_hooks": "register_step_post_hook",
    "_post_accumulate_grad_hooks": "register_post_accumulate_grad_hook",
    "_global_forward_pre_hooks": "register_module_forward_pre_hook",
    "_global_forward_hooks": "register_module_forward_hook",
    "_global_backward_pre_hooks": "register_module_full_backward_pre_hook",
    "_global_backward_hooks": "register_module_full_backward_hook",
}
"""By the attribute that keeps them. A tensor's are `_backward_hooks` too."""
_OF_TENSORS = ("_backward_hooks", "_post_accumulate_grad_hooks")
_GLOBAL = tuple(name for name in _REGISTERED_BY if name.startswith("_global"))
_PLAIN = (str, int, float, bool, type(None))
"""Values that are the same if they are equal."""
_WRAPPINGS = 5
"""Looked through at most, from a hook to the function of the job's."""
_TOLD = 3
"""Kinds of hooks at most, those that gain most first."""


def of_all_modules() -> "list[tuple]":
    """Dictionaries of hooks that no module keeps, by name."""
    module = torch.nn.modules.module
    return [(name, getattr(module, name)) for name in _GLOBAL if hasattr(module, name)]


def of_tensor(tensor) -> "list[tuple]":
    """Dictionaries of a parameter's hooks, by attribute. Of no subclass: asking one may run its code."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or not tensor.requires_grad or not tensor.is_leaf:
        return []
    kept = ((name, getattr(tensor, name, None)) for name in _OF_TENSORS)
    return [(name, hooks) for name, hooks in kept if hooks]


def are_hooks(held) -> bool:
    """Whether a container holds hooks of torch's."""
    return _attribute(held) in _REGISTERED_BY


def repeat(held) -> bool:
    """Whether one of Python's functions is among these hooks several times, whatever it is bound to."""
    codes = [function.__code__ for hook in list(dict.values(held.one)) if (function := _unwrapped(hook)[0]) is not None]
    return len(set(codes)) < len(codes)


def told(grown: list, lines) -> "list[dict]":
    """Of trends, each with the dictionary that grows: those that one line registers together, the most first."""
    kinds: "dict[tuple, list]" = {}
    for trend, held in grown:
        function = _function(held.one)
        kinds.setdefault((_registration(held), getattr(function, "__code__", None)), []).append((trend, held, function))
    found = []
    for (registered_by, _), alike in kinds.items():
        alike.sort(key=lambda one: -one[0].per_step)
        _, held, function = alike[0]
        uses, names = lines.around_hooks(held, function)
        found.append(
            {
                "registered_by": registered_by,
                "name": _owner(held),
                "owners": len(alike),
                "hooks": sum(trend.size for trend, *_ in alike),
                "per_step": sum(trend.per_step for trend, *_ in alike),
                "site": lines.registers(held, function, registered_by),
                "uses": uses,
                "passed_to": names,
            }
        )
    return sorted(found, key=lambda one: -one["per_step"])[:_TOLD]


def alike(held, trends: dict, lines) -> "list[dict]":
    """Of the dictionaries among `held` containers: hooks that are there several times, those of one function together.
    `trends`: of the containers, by `id()`."""
    kinds: "dict[tuple, list]" = {}
    for one in held:
        if len(one.one) < 2 or not are_hooks(one):
            continue
        counts: "dict[tuple, list]" = {}
        for hook in list(dict.values(one.one)):
            counts.setdefault(_bound(hook), []).append(hook)
        for (code, *_), hooks in counts.items():
            if code is not None and len(hooks) > 1 and not lines.is_library(code):
                kinds.setdefault((_registration(one), code), []).append((one, len(hooks)))
    found = []
    for (registered_by, code), owners in kinds.items():
        first, _ = owners[0]
        found.append(
            {
                "registered_by": registered_by,
                "name": _owner(first),
                "owners": len(owners),
                "times": sum(times for _, times in owners) / len(owners),
                "grows": any(trends[id(one.one)].rises for one, _ in owners),
                "site": lines.registers(first, _function(first.one), registered_by),
                "function": lines.defined(code),
            }
        )
    return sorted(found, key=lambda one: -one["times"])[:_TOLD]


def _bound(hook) -> tuple:
    """The code of the job's function and what it is bound to; None for the code of what is none of Python's."""
    function, values = _unwrapped(hook)
    if function is None:
        return (None,)
    values += function.__defaults__ or ()
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # a name without a value yet
            return (None,)
    return (function.__code__, *(one if type(one) in _PLAIN else id(one) for one in values))


def _attribute(held) -> str:
    return held.word.lstrip(".")


def _registration(held) -> str:
    return (
        "register_hook"
        if held.of_tensor and _attribute(held) == "_backward_hooks"
        else _REGISTERED_BY[_attribute(held)]
    )


def _owner(held) -> str:
    """The module, parameter or optimizer, as a name leads to it; "" for hooks on all modules."""
    return held.path.rpartition(".")[0]


def _function(hooks):
    """The newest hook as a function of Python's, without what it was wrapped in; None where it is none."""
    return _unwrapped(dict.__getitem__(hooks, next(reversed(hooks))))[0]


def _unwrapped(hook) -> tuple:
    """The function of Python's that a hook leads to, None where it is none; and what it is given on the way."""
    values: list = []
    for _ in range(_WRAPPINGS):
        if type(hook) is functools.partial:
            values += [*hook.args, *hook.keywords.values()]
            hook = hook.func
        elif type(hook) is types.MethodType:
            values.append(hook.__self__)
            hook = hook.__func__
        elif type(hook) is types.FunctionType and "__wrapped__" in vars(hook):
            hook = hook.__wrapped__  # decorated, with `torch.no_grad()` say
    return (hook if type(hook) is types.FunctionType else None), values
