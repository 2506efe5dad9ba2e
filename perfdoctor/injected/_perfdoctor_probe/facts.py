"""What a job has set, and where: torch's settings, and a trainer's, once a step or two have used them."""

import functools
from _thread import get_ident

from . import affinity, script, settings
from .decisions import decisions
from .rows import milliseconds
from .timeline import unit_ns
from .windows import origins

SETTLED = 2
"""The step from which on settings are taken as made."""


class Facts:
    """The settings of this process."""

    def __init__(self, probe) -> None:
        self.probe = probe
        self.noted: "dict[str, tuple | None]" = {}
        """Where something was first, or last, done, by name; None where the stack showed no line. What was done before
        a fork holds in the child too."""
        self.led: "dict[str, tuple]" = {}
        """Of some of these the functions that led to the call, the innermost first, its name, and what it was given."""
        self.follow_led = probe.guarded("origins", self._follow_led)
        self.settled = probe.guarded("origins", origins.settled)
        self.reset()

    def reset(self) -> None:
        self.autocast = ""
        self.onednn = self.cudnn = None
        self.without_optimizer = self.compiles_late = False
        """Whether the settings were written before any optimizer was seen (a rollout came first), or before the job
        called torch.compile."""

    @property
    def is_late(self) -> bool:
        """Whether they are to be written again."""
        return self.compiles_late or (self.without_optimizer and self.probe.optimizer is not None)

    def compiles(self, step: int, place) -> None:
        """torch.compile is about to be called, at `place`."""
        self.compiles_late |= "compile" not in self.noted and step >= SETTLED
        self.noted.setdefault("compile", place)

    def write(self) -> None:
        """Queue the settings."""
        probe = self.probe
        sites, discovery = probe.sites, probe.discovery
        optimizer = probe.optimizer() if probe.optimizer is not None else None
        self.without_optimizer, self.compiles_late = probe.optimizer is None, False
        seen = {name: getattr(self, name) for name in ("autocast", "onednn", "cudnn")}
        pinned = affinity.PLACES.get(get_ident())
        if pinned is not None:
            self.noted["pinned"] = pinned
        with settings.NotCompiled():  # generators that go through sources are none of Dynamo's
            sources = origins.Sources(sites.is_library)
            self.follow_led(sources)
            settled = functools.partial(self.settled, sources)
            given = script.options(settings.trainer(), settings.trainer_options(), settled)
            options = {**decisions(sites.is_library), **given}
        for name, places in (("sites", self.noted), ("options", options)):
            seen[name] = {one: sites.number(place) for one, place in places.items()}
        seen["data_parallel"] = discovery.data_parallel()
        with settings.NotCompiled():
            facts = settings.torch_settings(optimizer, seen)
            facts["start_ms"] = milliseconds(probe.start_ns)
            facts.update(probe.communication.place())
        probe.loading.watches_shapes = "cudnn" in facts
        facts["hook_ns"] = unit_ns()
        facts["compiled"] = discovery.compiled
        facts["eager_elements"], facts["compiled_elements"] = discovery.returned.values()
        if "cuda" in facts:
            # Without an optimizer, the device that is current must do.
            devices = facts["precision"]["parameter_devices"] if optimizer is not None else None
            facts["device_clock"] = probe.device_clock.start(devices)
        probe.recorder.record("settings", **facts)

    def _follow_led(self, sources: origins.Sources) -> None:
        for knob, (led, called, value) in self.led.items():
            self.noted[knob] = origins.decided_at(led, (called,), "", 0, value, sources) or self.noted[knob]
