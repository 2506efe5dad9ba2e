"""A window by its name. The modules are loaded when first needed, and only then."""

import os

from ..compiler import looked_at

_OF_PROFILE = 3
"""Steps of the trace that `perfdoctor profile` keeps: it is looked at, and a step has neighbours."""


def made(name: str, probe):
    """The window, for this job."""
    # Who has called torch.compile, and not what that returned, computes in Python like anybody else.
    compiled = probe.discovery.compiled and looked_at() != 0
    if name == "ops":
        from .operators import OpsWindow

        optimizer = probe.optimizer() if probe.optimizer is not None else None
        window = OpsWindow(probe.profilers, compiled, probe.facts.onednn, optimizer, probe.sites, _kept_trace(probe))
        if probe.sampling.asked:
            window.steps = _OF_PROFILE
        return window
    if name == "counters":
        from .counters import CountersWindow

        return CountersWindow(probe.profilers)
    if name == "gradients":
        from .gradients import GradientsWindow
        from .layers import obstacle

        return GradientsWindow(probe.windows.unused_gradients, probe.sites, compiled, not obstacle(compiled))
    if name in ("tracing", "traced_calls"):
        from .tracing import TracingWindow
        from .untraced import UntracedAllocations, UntracedCalls

        return TracingWindow(name, UntracedAllocations() if name == "tracing" else UntracedCalls(probe.sites))
    if name == "modes":
        from .modes import ModesWindow

        return ModesWindow(probe.sites, compiled, probe.modes.kinds)
    if name == "memory":
        from .memory import MemoryWindow

        optimizer = probe.optimizer() if probe.optimizer is not None else None
        return MemoryWindow(probe.sites, probe.loop, optimizer, compiled)
    if name == "objects":
        from .objects import ObjectsWindow

        return ObjectsWindow(probe.sites)
    if name in ("lines", "later"):
        from .lines import LinesWindow

        return LinesWindow(probe.sites, probe.loop, compiled, name)
    if name == "evaluation":
        from .evaluating import EvaluationWindow

        return EvaluationWindow(probe.sites, probe.loop, compiled)
    if name == "repeats":
        from .repeats import RepeatsWindow

        return RepeatsWindow(probe.sites, probe.loop, compiled, probe.evaluation)
    if name == "subnormals":
        from .subnormals import SubnormalsWindow

        return SubnormalsWindow(probe.sites, probe.loop, compiled)
    if name == "same":
        from .same_results import SameResultsWindow

        return SameResultsWindow(probe.sites, probe.loop, compiled, probe.windows.cycle)
    if name == "between":
        from .between import BetweenWindow

        return BetweenWindow(probe.sites, probe.loop, compiled, probe.evaluation)
    if name == "epochs":
        from .epoch_starts import EpochStartsWindow

        # One for all starts: what it compares lies an epoch apart.
        probe.epoch_starts = probe.epoch_starts or EpochStartsWindow(probe.sites, probe.loop, compiled)
        return probe.epoch_starts
    if name == "locks":
        from .lock_waits import LockWaitsWindow

        return LockWaitsWindow(probe.sites, probe.loop, probe.fault)
    from .call_sites import SitesWindow

    return SitesWindow(probe.sites, probe.loop, probe.anomaly, compiled, probe.doubles)


def _kept_trace(probe):
    """What keeps the window's trace, where it is asked for and there is a run directory; else None."""
    if "PERFDOCTOR_KEEP_TRACE" not in os.environ or probe.recorder.sender is not None:
        return None
    from .kept_trace import KeptTrace

    return KeptTrace(probe.recorder.path, probe.loop)
