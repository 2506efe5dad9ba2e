"""oneDNN on between the steps and off in them."""

from __future__ import annotations

from perfdoctor.api.findings import Finding
from perfdoctor.api.quantities import Backend, Evidence, Missing, Site, Step

from .._shared.onednn import onednn_off
from .case import Limits


def onednn_disabled(evidence: Evidence, step: Step, backend: Backend, limits: Limits) -> Finding | None:
    """Off in the whole process is PD01's."""
    if not backend.onednn_between_steps:
        return None
    where = "where convolutions ran" if backend.onednn_enabled else "at the end of a forward pass"
    return onednn_off(
        "PD02.onednn-disabled",
        evidence,
        step,
        backend,
        min_share=limits.min_share,
        error_share=limits.error_share,
        message="oneDNN is off inside the forward pass",
        reasoning=f"`torch.backends.mkldnn.enabled` was True between the steps, and False {where}; `flags()` switches "
        "it off unless it is called with `enabled=True`",
        at=_line_switched_off(evidence),
    )


def _line_switched_off(evidence: Evidence) -> Site | None:
    """Who switched it off; else a convolution that ran meanwhile, else the costliest line of the forward pass."""
    calls = () if isinstance(evidence.call_sites, Missing) else evidence.call_sites
    lines = () if isinstance(evidence.hot_lines, Missing) else evidence.hot_lines
    about = [call for call in calls if call.detail == "onednn"]
    off = [call.site for kind in ("library_flags", "library_off") for call in about if call.kind == kind]
    return next(iter([*off, *(line.site for line in lines if line.part == "forward")]), None)
