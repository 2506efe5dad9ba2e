"""What the optimizer's update takes as the job does it, by groups of tensors (`foreach`) and in one operator (`fused`);
and with parameters of the same options in one group, where the job gives many groups the same.

Timed after the job's last step, on tensors of its own with the shapes of the job's.
"""

import functools

import torch

from ..rows import rounded
from . import replay

_ELEMENTS = 1 << 24
"""Of the parameters that are copied: 64 MiB in float32, and two to four times that with gradients and states. Of more,
those that fit ..."""
_LEAST_PART = 0.25
"""... if they are this part of all."""
_WAYS = ("foreach", "fused")
_NAMES = ("name", "group_name")
"""Options of a group that say what it is, not what is done."""
_VALUE = 0.1
"""Of the gradients: neither they nor their squares are so small that the CPU takes longer."""


class UpdateMicrobenchmark:
    """What is needed to know of the job's optimizer, kept until the end."""

    def __init__(self, optimizer) -> None:
        """Looks at the tensors that have gradients: right after an update, those that it changed."""
        self.kind = type(optimizer)
        self.groups: "list[tuple[dict, list]]" = []
        self.tensors = self.elements = self.taken = 0
        self.missing = self.unlike = ""
        """Why neither the optimizer, nor its tensors can be copied."""
        try:
            self._look_at(optimizer)
        except Exception as error:  # an optimizer of another kind: no timing, no harm
            self.missing = f"{type(error).__name__}: {error}"[:300]

    def _look_at(self, optimizer) -> None:
        for group in optimizer.param_groups:
            options = {name: value for name, value in group.items() if name not in ("params", "param_names")}
            self.missing = self.missing or _obstacle(self.kind, options)
            self.groups.append((options, [self._noted(one) for one in group["params"] if one.grad is not None]))
        if not self.tensors:
            self.unlike = self.unlike or "no parameter had a gradient after the update"
        if not self.unlike and self.part < _LEAST_PART:
            self.unlike = "the parameters are too large to be copied"
        self.missing = self.missing or self.unlike

    def _noted(self, parameter) -> tuple:
        """Shape and type; or nothing, where the copies would take too much memory."""
        self.unlike = self.unlike or _unlike(parameter)
        self.tensors += 1
        self.elements += parameter.numel()
        if self.taken + parameter.numel() > _ELEMENTS:
            return ()
        self.taken += parameter.numel()
        return tuple(parameter.shape), parameter.dtype

    @property
    def part(self) -> float:
        """The share of all elements that may be copied."""
        return self.taken / max(1, self.elements)

    def shapes(self) -> list:
        """Shape and type of each tensor that may be copied."""
        return [one for _, noted in self.groups for one in noted if one]

    def timings(self) -> dict:
        """One update of `part` of all elements, each way; none for a way that it does not know."""
        if not self.missing:
            try:
                return {**self._timed(), "tensors": self.tensors, "part": rounded(self.part)}
            except Exception as error:  # an option that this cannot set: no timing, no harm
                self.missing = f"{type(error).__name__}: {error}"[:300]
        return {"missing": f"the optimizer's update could not be timed: {self.missing}"}

    def _timed(self) -> dict:
        groups = [group for group in self.groups if any(group[1])]
        merged = _merged(groups)
        ways = self._ways(groups)
        if len(merged) < len(groups):
            ways.update((f"{name}_together", way) for name, way in self._ways(merged).items())
        known = []
        for name, update in ways.items():
            try:
                update()
            except Exception:
                if name == "now":
                    raise
            else:
                known.append(name)
        times = replay.in_turns([ways[name] for name in known])
        made = _made(groups[0][0])
        return {
            "optimizer": self.kind.__name__,
            "made": made,
            "groups": len(groups),
            "groups_needed": len(merged),
            **{f"{name}_ms": took for name, took in zip(known, times) if name not in (made, f"{made}_together")},
        }

    def _ways(self, groups: "list[tuple[dict, list]]") -> dict:
        """What updates copies of these, by name: as the job does it, and each way that its optimizer knows."""
        optimizer = self.kind([{**options, "params": _copies(noted)} for options, noted in groups])
        # Without the hooks of all optimizers, which count the job's steps.
        step = self.kind.step.__wrapped__
        before = [tuple(group.get(way) for way in _WAYS) for group in optimizer.param_groups]

        def update(settings) -> None:
            for group, values in zip(optimizer.param_groups, settings):
                group.update(zip(_WAYS, values))
            step(optimizer)

        others = {name: (name == "foreach", name == "fused") for name in _WAYS if name in optimizer.defaults}
        ways = {"now": before, **{name: [settings] * len(before) for name, settings in others.items()}}
        return {name: functools.partial(update, settings) for name, settings in ways.items()}


def _merged(groups: "list[tuple[dict, list]]") -> "list[tuple[dict, list]]":
    """With those of the same options as one."""
    merged: "dict[tuple, tuple[dict, list]]" = {}
    for options, noted in groups:
        key = tuple(sorted((name, repr(value)) for name, value in options.items() if name not in _NAMES))
        merged.setdefault(key, (options, []))[1].extend(noted)
    return list(merged.values())


def _copies(noted: list) -> list:
    copies = []
    for shape, dtype in filter(None, noted):
        copy = torch.zeros(shape, dtype=dtype).requires_grad_()
        copy.grad = torch.full(shape, _VALUE, dtype=dtype)
        copies.append(copy)
    return copies


def _made(options: dict) -> str:
    """On the CPU an optimizer loops over its tensors unless told otherwise."""
    return next((way for way in _WAYS if options.get(way)), "loop")


def _obstacle(kind: type, options: dict) -> str:
    """Why such an optimizer cannot be copied; "" where it can."""
    if not kind.__module__.startswith("torch.optim.") or not hasattr(kind.step, "__wrapped__"):
        return f"{kind.__name__} is not one of torch's own optimizers"
    if "foreach" not in options:
        return f"{kind.__name__} has one way only"
    return "its step is differentiable" if options.get("differentiable") else ""


def _unlike(parameter) -> str:
    """Why such a tensor cannot be stood in for; "" where it can."""
    if parameter.device.type != "cpu":
        return "the parameters are not on the CPU"
    plain = type(parameter.data) is torch.Tensor and parameter.grad.layout is torch.strided
    return "" if plain and parameter.is_floating_point() else "the parameters or gradients are of a kind of their own"
