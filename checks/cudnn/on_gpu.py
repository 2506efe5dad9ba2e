"""cuDNN on a GPU: missing, mismatched, switched off, and its settings. None of it could be timed both ways in the job;
each finding says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Part,
    Severity,
    location,
    milliseconds,
    savings,
    severity,
    share,
)
from perfdoctor.api.quantities import Convolution, Cudnn, Evidence, LibraryUse, Missing, Recurrent, Site, Step

_NATIVE_SAVES = (0.5, 0.85)
"""cuDNN against torch's own convolutions: 3 to 10 times faster by common report, twice as a careful bound."""
_BENCHMARK_SAVES = (0.0, 0.3)
"""Of convolution time: speechbrain#294 reports 1.4 and 2.4 times, the tuning guide nothing for some."""
_DETERMINISTIC_COSTS = (0.05, 0.2)
"""Of convolution time: reports of 10 to 20 % of training (ADD-GCN#13, lerobot#3102)."""
_CHANNELS_LAST_SAVES = (0.08, 0.35)
"""Of convolution time in half precision: the memory-format tutorial's range, 22 % for ResNet-50."""
_RETUNING_COSTS = (0.1, 0.9)
"""Of forward and backward in steps with a new shape: pytorch#2759 reports steps 26 to 100 times longer."""
_COPIES_SAVE = (0.5, 1.0)
_FIXED_SHAPES = 3
"""Shapes of batches that still count as fixed: a ragged last batch and a validation size."""
_NEW_SHAPES = 0.10
"""Share of batches with a new shape, still in the second half, from which on tuning to each costs more than it gives.
Steps in the ordinary run of training see none."""
_HALF = ("float16", "bfloat16")
_TENSOR_CORES = (7, 0)


@dataclass(frozen=True, slots=True)
class Case:
    """What the questions below are about."""

    evidence: Evidence
    step: Step
    use: LibraryUse
    cudnn: Cudnn
    min_share: float
    error_share: float
    convolution_share: float

    def findings(self) -> list[Finding]:
        """Whether cuDNN does the work; only then how."""
        unused = self._unused()
        if unused:
            return unused
        return [
            *self._new_shapes(),
            *self._not_tuned(),
            *self._deterministic(),
            *self._channels_first(),
            *self._scattered_weights(),
        ]

    def ms(self, some: list[Convolution] | list[Recurrent]) -> float:
        """Of the device's time, which the step need not wait for: never more than a step."""
        return min(self.step.step_ms, sum(one.ms_per_step for one in some))

    @property
    def by_cudnn(self) -> list[Convolution]:
        return [one for one in self.use.convolutions if "cudnn" in one.kernel]

    def _site(self) -> Site | None:
        calls = () if isinstance(self.evidence.call_sites, Missing) else self.evidence.call_sites
        return next((call.site for call in calls if call.kind == "library_off" and call.detail == "cudnn"), None)

    def _finding(
        self,
        name: str,
        message: str,
        why: str,
        cost_ms: float,
        part: tuple[float, float],
        fix: Fix,
        method: str,
        *more: Measurement,
        note: bool = False,
    ) -> list[Finding]:
        low, high = (cost_ms * bound for bound in part)
        middle = (low + high) / 2 / self.step.step_ms
        if (high if note else low + high) / (1 if note else 2) / self.step.step_ms < self.min_share:
            return []
        return [
            Finding(
                id=f"PD02.{name}",
                severity=Severity.NOTE if note else severity(middle, self.min_share, self.error_share),
                confidence=Confidence.LOW if note else Confidence.MEDIUM,
                message=message,
                reasoning=why,
                evidence=(
                    milliseconds("cost_ms", cost_ms, "of device time per step"),
                    share("cost_share", cost_ms / self.step.step_ms, "of the step"),
                    *more,
                ),
                location=location(self._site()),
                fix=fix,
                savings=savings(self.step, Part.COMPUTE, ceiling=high, low=low, high=high, method=method),
            )
        ]

    # -- not used -----------------------------------------------------------------------------------------

    def _unused(self) -> list[Finding]:
        convolutions = [one for one in self.use.convolutions if one.native]
        recurrent = [one for one in self.use.recurrent if one.native]
        cost = min(self.step.step_ms, self.ms(convolutions) + self.ms(recurrent))
        cudnn = self.cudnn
        version = str(cudnn.version) if cudnn.version else "none"
        if cudnn.error:
            name, why = "cudnn-mismatched", "when cuDNN was loaded it said: {error}"
            fix = Fix(
                text="Remove the other cuDNN from LD_LIBRARY_PATH, or install the torch that goes with it.",
                code="unset LD_LIBRARY_PATH\npip install --force-reinstall torch",
                language="bash",
            )
        elif not cudnn.available:
            name, why = "cudnn-missing", "`torch.backends.cudnn.is_available()` is False in this build of torch"
            fix = Fix(
                text="Install the official wheel, which brings cuDNN along.",
                code="pip install --force-reinstall torch",
                language="bash",
            )
        elif not cudnn.enabled:
            name, why = "cudnn-disabled", "`torch.backends.cudnn.enabled` was False, also between the steps"
            fix = Fix(text="Leave cuDNN on.", code="torch.backends.cudnn.enabled = True", remedies=("cudnn.on",))
        elif cudnn.enabled_in_forward is False or self._site() is not None:
            name, why = (
                "cudnn-disabled",
                "cuDNN was on between the steps and off in the forward pass: `torch.backends.cudnn.flags()` switches "
                "it off unless it is called with enabled=True",
            )
            fix = Fix(
                text="Pass enabled=True to `flags()`.",
                remedies=("cudnn.on",),
                code="with torch.backends.cudnn.flags(enabled=True, deterministic=True):\n    loss = model(batch)",
                risk="Sums are taken in another order, so the last digits of results differ.",
            )
        else:
            name, why = (
                "native-convolutions",
                "cuDNN was on, but convolutions and recurrent layers ran in torch's own kernels: types and shapes that "
                "it does not know, or a switch inside the model; in the forward pass torch chose {chosen}",
            )
            fix = Fix(
                text="See which layers, and give them a type that cuDNN has; leave cuDNN on inside the model.",
                code="x = x.float()  # or bfloat16, contiguous",
            )
        return self._finding(
            name,
            "convolutions and recurrent layers take {cost_ms} a step in torch's own kernels, not in cuDNN's",
            why,
            cost,
            _NATIVE_SAVES,
            fix,
            "the device's time in them; cuDNN is reported 3 to 10 times faster, not measured in this run",
            Measurement("convolutions", len(convolutions), "count", "kinds of convolution"),
            Measurement("recurrent", len(recurrent), "count", "recurrent layers"),
            Measurement("version", version, "text", "cuDNN"),
            Measurement("chosen", _chosen(convolutions), "text", "what torch chose for them in the forward pass"),
            Measurement("error", cudnn.error or "nothing", "text", "what cuDNN said"),
        )

    # -- used, but how ------------------------------------------------------------------------------------

    def _new_shapes(self) -> list[Finding]:
        shapes = self.cudnn.shapes
        if not self.cudnn.benchmark or isinstance(shapes, Missing) or not self.by_cudnn:
            return []
        new = shapes.late / max(1.0, shapes.sampled / 2)
        if new < _NEW_SHAPES:
            return []
        parts = self.step.parts
        return self._finding(
            "benchmark-on-new-shapes",
            "cuDNN tries its algorithms again for every new shape, and {new} of the batches have one",
            "`torch.backends.cudnn.benchmark` is True, which pays for shapes that come back; {distinct} of "
            "{sampled:batch} looked at had a shape of their own, and new ones still came in the second half",
            (parts.forward + parts.backward) * min(1.0, new),
            _RETUNING_COSTS,
            Fix(
                text="Switch it off, or bring batches to a few sizes.",
                code="torch.backends.cudnn.benchmark = False",
            ),
            "forward and backward of the steps with a new shape; how much of that is trying was not measured",
            share("new", new, "of the batches in the second half"),
            Measurement("distinct", shapes.distinct, "count", "shapes seen"),
            Measurement("sampled", shapes.sampled, "count", "batches looked at"),
        )

    def _not_tuned(self) -> list[Finding]:
        cudnn, shapes = self.cudnn, self.cudnn.shapes
        cost = self.ms(self.by_cudnn)
        if cudnn.benchmark or cudnn.deterministic or isinstance(shapes, Missing) or shapes.distinct > _FIXED_SHAPES:
            return []
        if cost / self.step.step_ms < self.convolution_share:
            return []
        return self._finding(
            "benchmark-off",
            "convolutions of fixed shapes take {cost_ms} a step, {cost_share} of it, in algorithms chosen by rule of "
            "thumb",
            "`torch.backends.cudnn.benchmark` is False, and {sampled:batch} looked at had {distinct:shape}",
            cost,
            _BENCHMARK_SAVES,
            Fix(
                text="Let cuDNN try its algorithms once for each shape.",
                remedies=("cudnn.benchmark",),
                code="torch.backends.cudnn.benchmark = True",
                risk="The first step with a shape takes longer, memory may grow, and the last digits can differ "
                "between runs.",
            ),
            "the device's time in convolutions; nothing to 30 % was reported, not measured in this run",
            Measurement("distinct", shapes.distinct, "count", "shapes seen"),
            Measurement("sampled", shapes.sampled, "count", "batches looked at"),
            note=True,
        )

    def _deterministic(self) -> list[Finding]:
        if not self.cudnn.deterministic:
            return []
        return self._finding(
            "deterministic",
            "convolutions take {cost_ms} a step, and cuDNN may use its deterministic algorithms only",
            "`torch.backends.cudnn.deterministic` is True",
            self.ms(self.by_cudnn),
            _DETERMINISTIC_COSTS,
            Fix(
                text="Switch it off where runs need not repeat each other to the bit.",
                code="torch.backends.cudnn.deterministic = False",
                risk="Two runs with one seed no longer agree to the last digit.",
            ),
            "the device's time in convolutions; 5 to 20 % was reported, not measured in this run",
            note=True,
        )

    def _channels_first(self) -> list[Finding]:
        precision = self.evidence.precision
        capability = None if isinstance(precision, Missing) else precision.compute_capability
        if capability is None or capability < _TENSOR_CORES:
            return []
        some = [one for one in self.by_cudnn if one.dtype in _HALF and one.channels_last is False]
        cost = self.ms(some)
        turning = min(self.use.layout_ms, cost)
        low = max(_CHANNELS_LAST_SAVES[0], turning / cost if cost > 0 else 0.0)
        return self._finding(
            "channels-first",
            "half-precision convolutions take {cost_ms} a step on tensors with their channels first, which tensor "
            "cores do not read",
            "the inputs of {convolutions:kind} of convolution were not in the channels-last format; {turning_ms} a "
            "step went to kernels that turn them round",
            cost,
            (low, max(low, _CHANNELS_LAST_SAVES[1])),
            Fix(
                text="Keep model and images in the channels-last format.",
                remedies=("layout.channels-last",),
                code="model = model.to(memory_format=torch.channels_last)\n"
                "images = images.to(memory_format=torch.channels_last)",
                risk="Operators without a kernel for it turn tensors back; `view` on such tensors can fail, `reshape` "
                "does not.",
            ),
            "the device's time in these convolutions; 8 to 35 % was measured elsewhere, not in this run",
            Measurement("convolutions", len(some), "count", "kinds of convolution"),
            milliseconds("turning_ms", turning, "turning tensors round, per step"),
        )

    def _scattered_weights(self) -> list[Finding]:
        some = [one for one in self.use.recurrent if one.copies_ms > 0]
        return self._finding(
            "rnn-weights-scattered",
            "the weights of recurrent layers are copied into one piece in every call, for {cost_ms} a step",
            "`aten::_cudnn_rnn` copied them in {layers:layer}: they no longer lie in one chunk of memory, as after "
            "`deepcopy`, a tied weight or a parametrization",
            min(self.step.step_ms, sum(one.copies_ms for one in some)),
            _COPIES_SAVE,
            Fix(
                text="Put them into one piece again, once, after the model is on its device.",
                code="for module in model.modules():\n    if isinstance(module, torch.nn.RNNBase):\n"
                "        module.flatten_parameters()",
            ),
            "the measured time of the copies on the host's clock",
            Measurement("layers", len(some), "count", "recurrent layers"),
        )


def _chosen(convolutions: list[Convolution]) -> str:
    """`Slow2d for encoder.0 (float64)`, the costliest three."""
    named = [
        f"{one.chosen} for {one.layer or one.module or 'a convolution'} ({one.dtype})"
        for one in sorted(convolutions, key=lambda one: -one.ms_per_step)
        if one.chosen
    ]
    return ", ".join(named[:3]) or "nothing that it could be asked for"
