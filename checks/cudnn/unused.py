"""Convolutions and recurrent layers without their library: cuDNN missing or declined, oneDNN off in the step."""

from __future__ import annotations

from perfdoctor.api.findings import Finding, Fix, Measurement
from perfdoctor.api.quantities import Backend, Convolution, Evidence, Missing, Site, Step

from .._shared.lines import forward_line
from .._shared.onednn import onednn_off
from .case import Case, Limits

_NATIVE_SAVES = (0.5, 0.85)
"""cuDNN against torch's own convolutions: a speed-up of 3x to 10x by common report, 2x as a careful bound."""


def unused(case: Case) -> Finding | None:
    """By the device's time in torch's own kernels."""
    convolutions = [one for one in case.use.convolutions if one.native]
    recurrent = [one for one in case.use.recurrent if one.native]
    name, why, fix = _why(case)
    return case.finding(
        name,
        "convolutions and recurrent layers without cuDNN take {cost_ms} per step ({cost_share})",
        why,
        min(case.step.step_ms, case.ms(convolutions) + case.ms(recurrent)),
        _NATIVE_SAVES,
        fix,
        "the device's time in them; cuDNN is reported to have a speed-up of 3x to 10x, not measured in this run",
        Measurement("convolutions", len(convolutions), "count", "kinds of convolution"),
        Measurement("recurrent", len(recurrent), "count", "recurrent layers"),
        Measurement("version", str(case.cudnn.version) if case.cudnn.version else "none", "text", "cuDNN"),
        Measurement("chosen", _chosen(convolutions), "text", "what torch chose for them in the forward pass"),
        Measurement("error", case.cudnn.error or "nothing", "text", "what cuDNN said"),
        at=case.switched_off_at or (None if case.cudnn.enabled else case.cudnn.enabled_at),
    )


def _why(case: Case) -> tuple[str, str, Fix]:
    """Name of the finding, its reason, its fix."""
    cudnn = case.cudnn
    if cudnn.error:
        return (
            "cudnn-mismatched",
            "when cuDNN was loaded it said: {error}",
            Fix(
                text="Remove the other cuDNN from LD_LIBRARY_PATH, or install the torch that goes with it.",
                code="unset LD_LIBRARY_PATH\npip install --force-reinstall torch",
                language="bash",
            ),
        )
    if not cudnn.available:
        return (
            "cudnn-missing",
            "`torch.backends.cudnn.is_available()` is False in this build of torch",
            Fix(
                text="Install the official wheel, which brings cuDNN along.",
                code="pip install --force-reinstall torch",
                language="bash",
            ),
        )
    if not cudnn.enabled:
        return (
            "cudnn-disabled",
            "`torch.backends.cudnn.enabled` was False, also between the steps",
            Fix(text="Leave cuDNN on.", code="torch.backends.cudnn.enabled = True", remedies=("cudnn.on",)),
        )
    if cudnn.enabled_in_forward is False or case.switched_off_at is not None:
        return (
            "cudnn-disabled",
            "cuDNN was on between the steps and off in the forward pass: `torch.backends.cudnn.flags()` switches it "
            "off unless it is called with `enabled=True`",
            Fix(
                text="Call `flags()` with `enabled=True`.",
                remedies=("cudnn.on",),
                code="with torch.backends.cudnn.flags(enabled=True, deterministic=True):\n    loss = model(batch)",
                risk="Sums are taken in another order, so the last digits of results differ.",
            ),
        )
    return (
        "native-convolutions",
        "cuDNN was on, but torch's own kernels ran: for types and shapes that cuDNN does not know, or because of a "
        "switch inside the model; in the forward pass torch chose {chosen}",
        Fix(
            text="See which layers, and give them a type that cuDNN has; leave cuDNN on inside the model.",
            code="x = x.float()  # or bfloat16, contiguous",
        ),
    )


def _chosen(convolutions: list[Convolution]) -> str:
    """`Slow2d for encoder.0 (float64)`, the costliest three."""
    named = [
        f"{one.chosen} for {one.layer or one.module or 'a convolution'} ({one.dtype})"
        for one in sorted(convolutions, key=lambda one: -one.ms_per_step)
        if one.chosen
    ]
    return ", ".join(named[:3]) or "nothing that it could be asked for"


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
        at=_line_switched_off(evidence, backend),
    )


def _line_switched_off(evidence: Evidence, backend: Backend) -> Site | None:
    """Who switched it off; else a convolution that ran meanwhile, else the costliest line of the forward pass."""
    calls = () if isinstance(evidence.call_sites, Missing) else evidence.call_sites
    about = [call for call in calls if call.detail == "onednn"]
    off = [call.site for kind in ("library_flags", "library_off") for call in about if call.kind == kind]
    return next(iter(off), backend.onednn_off_at or forward_line(evidence))
