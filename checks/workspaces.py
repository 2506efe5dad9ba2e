"""Memory allocation: pages that are faulted in again each step, and allocators that get in the way.

What it looks at
----------------
On the CPU: page faults and system time per step, against the cost of one fault measured on this machine, and the
C allocator with its settings. On CUDA: allocations and retries that reach the driver in steady state,
fragmentation, a switched-off cache, `empty_cache` in the loop. Everywhere: forwards in evaluation mode that
record a graph nobody uses, and backward passes through a model that no optimizer updates.

Why it costs time
-----------------
glibc gives blocks above its threshold (at most 32 MiB) back to the kernel when they are freed and asks for new
ones at the next use. The kernel hands out zeroed pages one fault at a time: about 1.5 us per 4 KiB here. A
convolution step with 51 MB of activations spent 43 % of its time there, and ran 1.77 times faster once the
allocator kept its memory. Workspaces did this for Deeplearning4j; torch's CUDA allocator does it on the GPU.

Example
-------
    h = conv(x)          # 51 MB: mapped, faulted in page by page, used once, unmapped
    loss.backward()      # and again, every step

How to fix
----------
Set glibc's thresholds in the environment before Python starts, or preload jemalloc or tcmalloc. On CUDA take
`empty_cache` out of the loop and let segments expand. Wrap evaluation in `torch.inference_mode()`.

When it stays silent
--------------------
When faults explain less than 5 % of the step. Fault counts alone never alarm: they vary by 30 % from run to run.
Memory taken in the first steps, or at an epoch's border, is not in the steady step.

Limits
------
System time that is not page faults (reading files, networks) is left to the other checks. The remedy for glibc
needs a new process and keeps more memory resident. CUDA's `cudaMallocAsync` backend reports no statistics.

References
----------
- Deeplearning4j, "How to debug performance issues", step 8
- glibc manual, "Memory allocation tunables": M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD
- PyTorch, "Grokking PyTorch Intel CPU performance", part 2: jemalloc 1.16 to 2.2 times faster
- transformers, `torch_empty_cache_steps`: about 10 % slower
"""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.findings import (
    Check,
    Confidence,
    Finding,
    Fix,
    Measurement,
    Outcome,
    Part,
    cannot_tell,
    clear,
    found,
    location,
    milliseconds,
    savings,
    severity,
    share,
)
from perfdoctor.api.quantities import CallSite, CudaMemory, EvalWithGrad, Evidence, HostMemory, Missing, Step

from ._shared.graph import GRAPH_SAVES


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds."""

    min_share: float = 0.05
    """Share of the step: below, raising thresholds is not worth the memory it keeps."""
    churn_warning: float = 0.08
    """Page faults come and go from launch to launch: two healthy programs had none in one and 5 to 7 % in the next, and
    a warning that does the same is none."""
    error_share: float = 0.20
    """A judgement; the step that gained 1.77x had 43 %."""
    max_retries_per_step: float = 0.01
    """Allocations that failed and flushed the CUDA cache; zero in steady state."""
    max_fragmentation: float = 0.3
    """Share of the reserved memory unused at the peak, from which on retries are blamed on its cutting up."""


_FAULT_SPREAD = (0.7, 1.6)
"""A fault's true timing over the measured first touch: unmapping, TLB and cache misses come on top, batched
faults come cheaper. From a step where faults took 43 % of the time and 1.77x was gained."""
_BACKWARD_SAVES = (0.8, 1.0)
"""Of the measured backward pass through a model whose gradients nobody uses: all of it, as far as it was told apart."""
_WALKED = "; a later one runs through it as well, for {backward_ms} a step"
_MAY_BE_WALKED = "; if a later one runs through it, it costs more than this"
_MALLOC = (
    "export MALLOC_MMAP_THRESHOLD_=4294967296\nexport MALLOC_TRIM_THRESHOLD_=8589934592\n"
    "export MALLOC_TOP_PAD_=268435456\n"
    "python train.py"
)


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """The C allocator, evaluation with gradients, then the CUDA allocator."""
    step, memory = evidence.step, evidence.memory
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if isinstance(memory, Missing):
        return cannot_tell(f"memory was not measured: {memory}")
    fault_ns = evidence.machine.page_fault_ns
    faults_ms = memory.minor_faults * fault_ns / 1e6 if fault_ns else 0.0
    shared = _shared(memory, faults_ms, step)
    findings = [
        *_churn(memory, step, faults_ms, limits),
        *(_emptied_cache(call, step, limits) for call in memory.empty_cache if _matters(call, step, limits)),
        *(() if _in_threads(evidence, step) else _evaluation(evidence, memory.eval_with_grad, step, limits)),
        *_unused_gradients(evidence, step, limits),
    ]
    if not isinstance(evidence.cuda_memory, Missing):
        findings += _cuda(evidence.cuda_memory, step, limits)
    if findings:
        return found(*findings, measurements=shared)
    if not isinstance(evidence.cuda_memory, Missing) and not evidence.cuda_memory.caching:
        return cannot_tell(
            "the CUDA caching allocator is switched off and no driver allocation was counted, so its cost is not "
            "known; run once without PYTORCH_NO_CUDA_MEMORY_CACHING and compare"
        )
    if fault_ns is None and memory.system_share > limits.min_share:
        return cannot_tell("the cost of a page fault could not be measured on this machine, so system time has no name")
    return clear("{faults:page fault a step takes|page faults a step take} about {faults_ms} ({faults_share})", *shared)


def _shared(memory: HostMemory, faults_ms: float, step: Step) -> tuple[Measurement, ...]:
    return (
        Measurement("faults", round(memory.minor_faults), "count", "page faults per step"),
        milliseconds("faults_ms", faults_ms, "page faults per step, by their timing here"),
        share("faults_share", faults_ms / step.step_ms, "of the step"),
        share("system_share", memory.system_share, "CPU time spent in the kernel"),
    )


def _churn(memory: HostMemory, step: Step, faults_ms: float, limits: Limits) -> list[Finding]:
    """Page faults that cost time, as far as the kernel's own time bears them out."""
    low_factor, high_factor = _FAULT_SPREAD
    # Faults cannot take longer than the kernel worked; its other work is not theirs.
    ceiling = min(memory.system_cpu_ms, high_factor * faults_ms, step.step_ms)
    cost = min(memory.system_cpu_ms, faults_ms)
    cost_share = cost / step.step_ms
    if cost_share < limits.min_share:
        return []
    return [
        Finding(
            id="PD08.allocator-churn",
            severity=severity(cost_share, limits.churn_warning, limits.error_share),
            confidence=Confidence.HIGH if memory.allocator == "glibc" else Confidence.MEDIUM,
            message="memory is taken from the kernel and given back in every step: {faults:page fault}, about "
            "{cost_ms}, {cost_share} of the step",
            reasoning="{system_share} of the process's CPU time is the kernel's; the allocator is {allocator}"
            + (", with its default thresholds" if not memory.malloc_settings else ", with {settings} set"),
            evidence=(
                milliseconds("cost_ms", cost, "in page faults per step, by their timing here"),
                share("cost_share", cost_share, "of the step"),
                Measurement("faults", round(memory.minor_faults), "count", "page faults per step"),
                milliseconds("system_ms", memory.system_cpu_ms, "kernel time per step"),
                share("system_share", memory.system_share, "CPU time spent in the kernel"),
                Measurement("allocator", memory.allocator, "text", "allocator"),
                Measurement(
                    "settings", ", ".join(name for name, _ in memory.malloc_settings) or "nothing", "text", "set"
                ),
            ),
            fix=_allocator_fix(memory),
            savings=savings(
                step,
                Part.COMPUTE,
                ceiling=ceiling,
                low=min(ceiling, low_factor * cost),
                high=ceiling,
                method="page faults times the timing of one, measured on this machine, within the kernel's CPU time",
            ),
        )
    ]


def _allocator_fix(memory: HostMemory) -> Fix:
    thresholds_set = any(name.startswith("MALLOC_MMAP_THRESHOLD") for name, _ in memory.malloc_settings)
    if memory.allocator != "glibc" or thresholds_set:
        return Fix(
            text="The allocator gives memory back too eagerly: raise its decay time, or allocate large buffers once "
            "and reuse them (`out=`).",
            code="export MALLOC_CONF=background_thread:true,dirty_decay_ms:30000,muzzy_decay_ms:30000",
            language="bash",
            risk="More memory stays resident.",
        )
    return Fix(
        text="Let glibc keep the memory between steps (or preload jemalloc or tcmalloc). The variables must be set "
        "before Python starts.",
        code=_MALLOC,
        language="bash",
        risk="The process keeps its peak memory; on a machine that is short of it, set smaller values.",
        remedies=("memory.malloc", "memory.jemalloc", "memory.tcmalloc"),
    )


def _matters(call: CallSite, step: Step, limits: Limits) -> bool:
    return call.ms_per_step / step.step_ms >= limits.min_share


def _emptied_cache(call: CallSite, step: Step, limits: Limits) -> Finding:
    cost_share = call.ms_per_step / step.step_ms
    return Finding(
        id="PD08.empty-cache",
        severity=severity(cost_share, limits.min_share, limits.error_share),
        confidence=Confidence.HIGH,
        message="`torch.cuda.empty_cache()` in the loop takes {cost_ms} a step, {cost_share} of it",
        reasoning="it returns memory to the driver that the next step asks for again, {calls:time} a step",
        evidence=(
            milliseconds("cost_ms", call.ms_per_step, "the calls per step"),
            share("cost_share", cost_share, "of the step"),
            Measurement("calls", call.calls_per_step, "count", "calls per step"),
        ),
        location=location(call.site),
        fix=Fix(
            text="Take the call out of the loop; torch reuses what it holds.",
            code="# torch.cuda.empty_cache()  # not needed; for fragmentation, before Python starts:\n"
            "# export PYTORCH_ALLOC_CONF=expandable_segments:True",
            risk="Other processes on the GPU see less free memory.",
            remedies=("memory.empty-cache",),
        ),
        savings=savings(
            step,
            Part.OTHER,
            ceiling=2 * call.ms_per_step,
            low=call.ms_per_step,
            high=2 * call.ms_per_step,
            method="the measured calls, and as much again for allocating anew",
        ),
    )


def _in_threads(evidence: Evidence, step: Step) -> bool:
    """Whether PD06 bills those graphs: `no_grad` did not reach the threads that make them."""
    threads = evidence.concurrency
    return not isinstance(threads, Missing) and threads.graph_nobody_uses and step.boundary != "optimizer"


def _backward_for_nothing(evidence: Evidence, step: Step) -> float:
    """Milliseconds in which the backward pass makes gradients of a model that stands aside, such as a teacher."""
    layers = evidence.layers
    if isinstance(layers, Missing) or step.boundary != "optimizer":
        return 0.0
    return min(layers.aside_backward_ms, step.parts.backward)


def _evaluation(evidence: Evidence, evaluation: EvalWithGrad | None, step: Step, limits: Limits) -> list[Finding]:
    if evaluation is None:
        return []
    # Validation lies outside the steady step; a frozen teacher, or validation in every other step, does not.
    part = Part.EPOCH if step.irregular_ms >= 0.5 * evaluation.forward_ms else Part.COMPUTE
    backward = _backward_for_nothing(evidence, step) if part is Part.COMPUTE else 0.0
    low, high = (
        fraction * evaluation.forward_ms + kept * backward
        for fraction, kept in zip(GRAPH_SAVES, _BACKWARD_SAVES, strict=True)
    )
    if high / step.step_ms < limits.min_share:
        return []
    in_training = part is Part.COMPUTE and step.parts.backward > 0
    return [
        Finding(
            id="PD08.grad-in-evaluation",
            severity=severity(high / step.step_ms, limits.min_share, 2.0),
            confidence=Confidence.MEDIUM,
            message="evaluation records a graph: {forwards:forward} in evaluation mode with gradients on, "
            "{forward_ms} a step",
            reasoning="the model was in `eval()` mode, gradients were enabled, and no backward pass came before the "
            "next forward" + (_WALKED if backward else _MAY_BE_WALKED if in_training else ""),
            evidence=(
                Measurement("forwards", evaluation.forwards, "count", "such forwards"),
                milliseconds("forward_ms", evaluation.forward_ms, "in such forwards per step"),
                milliseconds("backward_ms", backward, "of the backward pass in models in evaluation mode"),
            ),
            location=location(evaluation.site),
            fix=Fix(
                text="Call it without gradients; that also frees the memory of the activations.",
                code="with torch.no_grad():\n    output = model(batch)  # the one in evaluation mode",
                risk="None, unless its own parameters are to learn from this loss.",
            )
            if in_training
            else Fix(
                text="Evaluate in inference mode; it also frees the memory of the activations.",
                code="with torch.inference_mode():\n    output = model(batch)",
                risk="Tensors made there cannot take part in a backward pass; use `torch.no_grad()` if they must.",
            ),
            savings=savings(
                step,
                part,
                ceiling=high,
                low=low,
                high=high,
                method="recording a graph takes 5 to 27 % of a forward pass, the smaller the kernels, the more"
                + ("; and the measured backward pass through it" if backward else ""),
            ),
        )
    ]


def _unused_gradients(evidence: Evidence, step: Step, limits: Limits) -> list[Finding]:
    """A model in training mode that no optimizer updates, through which the backward pass runs all the same."""
    layers = evidence.layers
    if isinstance(layers, Missing) or step.boundary != "optimizer":
        return []
    backward = min(sum(layer.backward_ms for layer in layers.idle), step.parts.backward)
    forward = min(sum(layer.forward_ms for layer in layers.idle), step.parts.forward)
    low, high = (graph * forward + kept * backward for graph, kept in zip(GRAPH_SAVES, _BACKWARD_SAVES, strict=True))
    if backward <= 0 or high / step.step_ms < limits.min_share:
        return []
    roots = [layer for layer in layers.idle if layer.called_at is not None]
    model = min(roots or layers.idle, key=lambda layer: layer.order)
    return [
        Finding(
            id="PD08.unused-gradients",
            severity=severity(high / step.step_ms, limits.min_share, limits.error_share),
            confidence=Confidence.MEDIUM,
            message="the backward pass takes {backward_ms} a step in a model that no optimizer updates: "
            "{backward_share} of the step",
            reasoning="its parameters want gradients and get them, its input wants none, and none of its parameters is "
            "in any optimizer",
            evidence=(
                milliseconds("backward_ms", backward, "of the backward pass in it"),
                share("backward_share", backward / step.step_ms, "of the step"),
                milliseconds("forward_ms", forward, "its forward pass"),
                Measurement("model", model.kind, "text", "the model"),
            ),
            location=location(model.called_at),
            fix=Fix(
                text="Call it without gradients; that also frees the memory of its activations.",
                code="with torch.no_grad():\n    targets = teacher(batch)",
                risk="None, unless its parameters are updated by hand or by an optimizer that is made later.",
            ),
            savings=savings(
                step,
                Part.COMPUTE,
                ceiling=high,
                low=low,
                high=high,
                method="its part of the backward pass, as measured by layer, and the 5 to 27 % of its forward pass "
                "that recording a graph takes",
            ),
        )
    ]


def _cuda(memory: CudaMemory, step: Step, limits: Limits) -> list[Finding]:
    """What the CUDA allocator asks of the driver in steady state; each such call synchronises the device."""
    if not memory.caching and memory.device_allocs_per_step > 0:
        return [_cuda_finding("caching-disabled", memory, step, limits, memory.device_allocs_per_step)]
    if memory.alloc_retries_per_step > limits.max_retries_per_step:
        name = "fragmentation" if memory.fragmentation > limits.max_fragmentation else "alloc-retries"
        calls = memory.device_allocs_per_step + memory.alloc_retries_per_step
        return [_cuda_finding(name, memory, step, limits, calls)]
    return []


_DRIVER_CALL_MS = (0.1, 1.0)
"""One cudaMalloc or cudaFree with its synchronisation; from public traces, not measured here."""


def _cuda_finding(name: str, memory: CudaMemory, step: Step, limits: Limits, calls: float) -> Finding:
    low, high = (calls * 2 * ms for ms in _DRIVER_CALL_MS)
    messages = {
        "caching-disabled": "the CUDA caching allocator is switched off: {allocs:driver allocation} a step",
        "fragmentation": "the CUDA cache is fragmented and flushed {retries:time} a step to find room",
        "alloc-retries": "the GPU's memory is full: the CUDA cache is flushed {retries:time} a step to find room",
    }
    fixes = {
        "caching-disabled": ("Switch it on again.", "unset PYTORCH_NO_CUDA_MEMORY_CACHING"),
        "fragmentation": (
            "Let segments grow instead of being cut.",
            "export PYTORCH_ALLOC_CONF=expandable_segments:True",
        ),
        "alloc-retries": (
            "Leave some room: a smaller batch, activation checkpointing, or expandable segments.",
            "export PYTORCH_ALLOC_CONF=expandable_segments:True",
        ),
    }
    text, code = fixes[name]
    return Finding(
        id=f"PD08.{name}",
        severity=severity(low / step.step_ms, limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message=messages[name],
        reasoning="an allocation that reaches the driver waits for the device; {fragmentation} of the reserved memory "
        "was not in use at the peak",
        evidence=(
            Measurement("allocs", memory.device_allocs_per_step, "count", "driver allocations per step"),
            Measurement("retries", memory.alloc_retries_per_step, "count", "cache flushes per step"),
            share("fragmentation", memory.fragmentation, "reserved but unused at the peak"),
            Measurement("reserved", memory.peak_reserved_bytes, "bytes", "reserved at the peak"),
            Measurement("total", memory.total_bytes, "bytes", "on the device"),
        ),
        fix=Fix(text=text, code=code, language="bash", remedies=("memory.cuda-alloc-conf",)),
        savings=savings(
            step,
            Part.COMPUTE,
            ceiling=high,
            low=low,
            high=high,
            method="driver calls per step at 0.1 to 1 ms each, a figure from public traces",
        ),
    )


CHECK = Check(code="PD08", name="workspaces", title="memory allocation", limits=Limits(), examine=examine)
