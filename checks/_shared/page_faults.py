"""What the page faults of a steady step take, by the timing of one on this machine."""

from __future__ import annotations

from perfdoctor.api.quantities import Evidence, Missing


def page_faults_ms(evidence: Evidence) -> float:
    """Milliseconds per step; 0 where faults were not counted, or one could not be timed."""
    memory, fault_ns = evidence.memory, evidence.machine.page_fault_ns
    return 0.0 if isinstance(memory, Missing) or not fault_ns else memory.minor_faults * fault_ns / 1e6
