"""Memory allocation: pages that are faulted in again each step, and allocators that get in the way.

What it looks at
----------------
On the CPU: page faults and system time per step, against the cost of one fault measured on this machine, and the
C allocator with its settings; `malloc_trim` called in the step. On CUDA: allocations and retries that reach the driver
in steady state, fragmentation, a switched-off cache, `empty_cache` in the loop. Everywhere: forwards in evaluation mode
that record an autograd graph that is never used, and backward passes through a model that no optimizer updates. Where
activation checkpointing computes layers again, the passes are run once more after the last step without it, if a
quarter of the free memory holds what they then keep.

Of a trace: the device's idle time while the driver allocates and frees memory.

Why it costs time
-----------------
glibc returns blocks above its threshold (at most 32 MiB) to the OS when they are freed, and the next use faults them
back in. The kernel hands out zeroed pages one fault at a time: about 1.5 us per 4 KiB here. A
convolution step with 51 MB of activations spent 43 % of its time there, and had a speed-up of 1.77x once the
allocator kept its memory. Activation checkpointing pays for memory with time, a second forward pass: where there is
memory enough, for nothing. Workspaces did this for Deeplearning4j; torch's CUDA allocator does it on the GPU.

Example
-------
    h = conv(x)          # 51 MB: mapped, faulted in page by page, used once, unmapped
    loss.backward()      # and again, every step

How to fix
----------
Set glibc's thresholds in the environment before Python starts, or preload jemalloc or tcmalloc; call no `malloc_trim`
in the loop. On CUDA take
`empty_cache` out of the loop and let segments expand. Wrap evaluation in `torch.inference_mode()`. Keep the
activations where they fit: checkpoint no layer, or only the largest ones.

When it stays silent
--------------------
When faults explain less than 5 % of the step. Fault counts alone never alarm: they vary by 30 % from run to run.
Memory taken in the first steps, or at an epoch's border, is not in the steady step. Checkpointing is an opportunity at
most: elsewhere there may be less memory.

Limits
------
System time that is not page faults (reading files, networks) is left to the other checks. The remedy for glibc
needs a new process and keeps more memory resident. Checkpointing of the reentrant kind (`use_reentrant=True`) is not
judged, nor where the passes cannot be run again. CUDA's `cudaMallocAsync` backend reports no statistics.

References
----------
- Deeplearning4j, "How to debug performance issues", step 8
- glibc manual, "Memory allocation tunables": M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD
- PyTorch, "Grokking PyTorch Intel CPU performance", part 2: jemalloc 1.16 to 2.2 times faster
- transformers, `torch_empty_cache_steps`: about 10 % slower
"""

from __future__ import annotations

from perfdoctor.api.findings import Check, Measurement, Outcome, cannot_tell, clear, found, milliseconds, present, share
from perfdoctor.api.quantities import Evidence, HostMemory, Missing, Step

from .._shared.page_faults import page_faults_ms
from .._shared.traced import traced
from .allocator_churn import allocator_churn
from .checkpointing import needless_checkpointing
from .cuda_allocator import cuda_allocator, emptied_cache
from .device_allocations import in_trace
from .gradients import grad_in_evaluation, unused_gradients
from .limits import Limits
from .trimmed import memory_trimmed


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """The C allocator, evaluation with gradients, then the CUDA allocator."""
    step, memory = evidence.step, evidence.memory
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    seen = traced(step, evidence.activity)
    if seen is not None:
        return in_trace(seen)
    if isinstance(memory, Missing):
        return cannot_tell(f"memory was not measured: {memory}")
    fault_ns = evidence.machine.page_fault_ns
    faults_ms = page_faults_ms(evidence)
    shared = _shared(memory, faults_ms, step)
    trimmed = memory_trimmed(evidence, memory, step, faults_ms, limits)
    findings = present(
        trimmed or allocator_churn(evidence, memory, step, faults_ms, limits),
        *(emptied_cache(call, step, limits) for call in memory.empty_cache),
        grad_in_evaluation(evidence, memory, step, limits),
        unused_gradients(evidence, step, limits),
        needless_checkpointing(evidence, step, limits),
        cuda_allocator(evidence.cuda_memory, step, limits),
    )
    if findings:
        return found(*findings, measurements=shared)
    if not isinstance(evidence.cuda_memory, Missing) and not evidence.cuda_memory.caching:
        return cannot_tell(
            "the CUDA caching allocator is switched off and no driver allocation was counted, so its cost is not "
            "known; run once without PYTORCH_NO_CUDA_MEMORY_CACHING and compare"
        )
    if fault_ns is None and memory.system_share > limits.min_share:
        return cannot_tell("the cost of a page fault could not be measured on this machine, so system time has no name")
    return clear("{faults:page fault takes|page faults take} about {faults_ms} per step ({faults_share})", *shared)


def _shared(memory: HostMemory, faults_ms: float, step: Step) -> tuple[Measurement, ...]:
    return (
        Measurement("faults", round(memory.minor_faults), "count", "page faults per step"),
        milliseconds("faults_ms", faults_ms, "page faults per step, by their timing here"),
        share("faults_share", faults_ms / step.step_ms, "of the step"),
        share("system_share", memory.system_share, "CPU time spent in the kernel"),
    )


CHECK = Check(
    code="PD08", name="workspaces", title="memory allocation", limits=Limits(), examine=examine, aliases=("memory",)
)
