"""Lines that set how torch computes: types, threads, back ends, determinism; and what traces Python."""

import functools
import sys

import torch

from ..sites import callers
from .around import SELF, followed, switching_off


def grad_scaler(probe) -> None:
    scaler = torch.amp.grad_scaler.GradScaler

    def made(scaler) -> None:
        if scaler.is_enabled():
            probe.facts.noted["scaler"] = probe.sites.place()

    init = followed(scaler.__init__, probe.guarded("grad_scaler", made), SELF)
    probe.changes.put(scaler, "__init__", init, "grad_scaler")


def double(probe) -> None:
    def asked() -> None:
        if probe.facts.noted.get("double") is None:
            probe.facts.noted["double"] = probe.sites.place(2)

    def asked_in(*words) -> None:
        # A type, or a tensor that has it. The module itself is among the words too.
        kinds = (word.dtype if isinstance(word, torch.Tensor) else word for word in words)
        if any(kind is torch.float64 for kind in kinds):
            asked()

    asked, asked_in = probe.guarded("double", asked), probe.guarded("double", asked_in)
    module = torch.nn.Module
    for owner, name, stand_in in (
        (torch, "set_default_dtype", followed(torch.set_default_dtype, asked_in, slice(None))),
        (module, "double", followed(module.double, asked)),
        (module, "to", followed(module.to, asked_in, slice(None))),
    ):
        probe.changes.put(owner, name, stand_in, "double")


def knobs(probe) -> None:
    """Lines that set the number of threads, switch oneDNN off, tell cuDNN how to work, torch to be deterministic, or
    Python to trace its allocations."""
    import tracemalloc

    import torch.backends.mkldnn as mkldnn

    def by_call(knob: str, called: str, value) -> None:
        probe.facts.noted[knob] = probe.sites.place(3)
        probe.facts.led[knob] = callers(sys._getframe(2), probe.sites.is_library), called, value

    def threads_set() -> None:
        by_call("threads", "set_num_threads", torch.get_num_threads())

    def onednn_set() -> None:
        if not torch._C._get_mkldnn_enabled():
            probe.facts.noted["onednn"] = probe.sites.place(2)

    def cudnn_set(name: str) -> None:
        probe.facts.noted[f"cudnn.{name}"] = probe.sites.place(2)

    def deterministic_set(name: str) -> None:
        by_call("deterministic", name, True)

    def traced() -> None:
        probe.facts.noted["tracemalloc"] = probe.sites.place(2)

    places = [
        (torch, "set_num_threads", threads_set),
        (mkldnn, "set_flags", onednn_set),
        (tracemalloc, "start", traced),
    ]
    places += [
        (torch, name, functools.partial(deterministic_set, name))
        for name in ("use_deterministic_algorithms", "set_deterministic_debug_mode")
    ]
    settings = [(mkldnn, "enabled", onednn_set)]
    for name in ("enabled", "benchmark", "deterministic"):
        settings.append((torch.backends.cudnn, name, functools.partial(cudnn_set, name)))
    for module, name, done in settings:
        setting = vars(type(module)).get(name)  # what assigning to `torch.backends.mkldnn.enabled` goes through
        if setting is not None:
            places.append((setting, "setter", done))
    for owner, name, done in places:
        probe.changes.put(owner, name, followed(getattr(owner, name), probe.guarded("knobs", done)), "knobs")


def onednn_flags(probe):
    """A stand-in for `torch.backends.mkldnn.flags`: the line that makes one by which oneDNN is off is told where the
    steps turn out to run inside."""

    def noted() -> None:
        probe.facts.noted["onednn"] = probe.sites.place(2)

    return switching_off(torch.backends.mkldnn.flags, probe.guarded("knobs", noted))
