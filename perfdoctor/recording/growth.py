"""What the job keeps more and more of, from censuses of what its names hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .base import Site


@dataclass(frozen=True, slots=True)
class GrowingContainer:
    """A list, dictionary, set or deque that had more elements at each of the last three censuses, or more."""

    name: str
    """As a name leads to it: `history`, `log["loss"]`, `trainer.bank.items`."""
    kind: str
    """`list`, `dict`, `deque`, ..."""
    length: int
    """At the last census."""
    per_step: float
    """Elements that it gains."""
    tensors: float
    """Share of its newest elements that are tensors, or tuples with some."""
    graphs: float
    """Share of them that keep an autograd graph alive."""
    bytes_per_step: int
    """Of the tensors that it gains."""
    site: Site | None
    """The line that adds to it, by the source; None where no line says so."""
    uses: tuple[Site, ...] = ()
    """Lines that name it, in the files where it may be called so."""
    passed_to: tuple[str, ...] = ()
    """Functions that those lines call."""
    picked_at: Site | None = None
    """Of a deque, the line that takes elements by their places: it walks to each."""


@dataclass(frozen=True, slots=True)
class GrowingGraph:
    """An autograd graph, kept alive by a tensor, that had more nodes at each of the last three censuses, or more."""

    name: str
    """Of the tensor: `hidden`, `self.average`."""
    nodes: int
    """At the last census."""
    per_step: float
    site: Site | None
    """The line that sets it, by the source; None where no line says so."""


@dataclass(frozen=True, slots=True)
class GrowingTensor:
    """A tensor or array that had more numbers at each of the last three censuses, or more, and carried on what it held:
    `bank = torch.cat([bank, x])`."""

    name: str
    """As a name leads to it: `bank`, `self.queue`."""
    bytes: int
    """At the last census."""
    bytes_per_step: int
    site: Site | None
    """The line that computes it from itself, by the source."""
    uses: tuple[Site, ...] = ()
    """Lines that name it, or what such a line of the same function computes from it."""
    passed_to: tuple[str, ...] = ()
    """Functions that lines which name it call."""


@dataclass(frozen=True, slots=True)
class GrowingHooks:
    """Hooks that were more at each of the last three censuses, or more: registered again and again, never removed."""

    registered_by: str
    """The method that does: `register_forward_hook`, `register_hook`, ..."""
    name: str
    """Of the module, parameter or optimizer that has them: `loss.net.0`; "" for hooks on all modules. Of several the
    one that gains most."""
    owners: int
    """How many have such hooks, and gain some."""
    hooks: int
    """Of all owners, at the last census."""
    per_step: float
    """That they gain."""
    site: Site | None
    """The line that registers them, by the source; None where no line of the user's does."""
    uses: tuple[Site, ...] = ()
    """Lines that name the owner, or what leads to it, and call something."""
    passed_to: tuple[str, ...] = ()
    """The hook's own function, where it is the user's."""


@dataclass(frozen=True, slots=True)
class AlikeHooks:
    """The same hook several times on one owner, or on each of several: one function, bound to the same values."""

    registered_by: str
    """The method that does: `register_forward_hook`, ..."""
    name: str
    """Of one of the owners; "" for hooks on all modules."""
    owners: int
    times: float
    """That an owner has it, on average."""
    grows: bool
    """An owner had fewer hooks at an earlier census."""
    site: Site | None
    """The line that registers them, by the source."""
    function: Site
    """Where the hook's function begins."""


@dataclass(frozen=True, slots=True)
class AlikeHandlers:
    """Handlers of one logger that write each record to the same place."""

    logger: str
    """Its name; `root` for that of all."""
    kind: str
    """Their class."""
    times: int
    """That there are, at the last census."""
    grows: bool
    """There were fewer at the one before."""
    site: Site | None
    """The line that adds them, by the source."""


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A function or an object around another one of its kind, around another one: more layers at each of the last three
    censuses, or more."""

    name: str
    """What makes a layer: the function that returns it, or its class."""
    is_dataset: bool
    layers: int
    """At the last census."""
    per_step: float
    """That it gains."""
    site: Site | None
    """The line that wraps it, by the source."""
    uses: tuple[Site, ...] = ()
    """The layer's own lines, where they are the user's."""


@dataclass(frozen=True, slots=True)
class Growth:
    """The last census in which something had grown."""

    step: int
    containers: tuple[GrowingContainer, ...]
    """Those that keep graphs first, then by bytes and elements per step."""
    graphs: tuple[GrowingGraph, ...]
    """At most the one that gains most nodes."""
    larger_tensors: tuple[GrowingTensor, ...] = ()
    """The fastest first."""
    hooks: tuple[GrowingHooks, ...] = ()
    """Those that gain most first."""
    alike_hooks: tuple[AlikeHooks, ...] = ()
    """Those that are there most often first."""
    wrapped: tuple[Wrapped, ...] = ()
    """The deepest first."""
    alike_handlers: tuple[AlikeHandlers, ...] = ()
    """Those that are there most often first."""


@dataclass(frozen=True, slots=True)
class Planned:
    """How many steps the loop is going to take, told where steps get longer and where perfdoctor ends the job."""

    step: int
    steps: int
    """That the process will have taken in all."""
    epoch: int = 0
    """Of them in an epoch; 0 where that is not known."""
    by: Literal["loops", "lightning", "transformers"] = "loops"
    """Who says so: the job's own `for` statements, or its trainer."""
    at_most: bool = False
    """The trainer stops early where nothing gets better."""


@dataclass(frozen=True, slots=True)
class Afterwards:
    """The job that perfdoctor ends would train on after this loop."""

    step: int
    site: Site
    """The first line that does, by the source of the functions under way."""
