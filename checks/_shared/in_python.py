"""Lines of the loop in which Python, or a library other than torch, computes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from perfdoctor.api.quantities import CallSite, CodeLine, Evidence, Missing, Site

from .lines import PYTHON_PARTS, key

_OPERATORS = 0.1
"""Of a line's time, from which on it computes on tensors."""
_LAUNCH_MS = 0.01
"""Of an operator beyond its own time: Python and dispatch. What else lies before one may be what the line computes: a
tree of points, and then the array that it makes of a tensor."""


def lines_in_python(evidence: Evidence, parts: tuple[str, ...] = PYTHON_PARTS) -> list[CodeLine]:
    """Lines that issue hardly any operators, in these parts of the step: by default outside the making of batches."""
    if isinstance(evidence.code_lines, Missing) or isinstance(evidence.hot_lines, Missing):
        return []
    issued: defaultdict[tuple[str, int], float] = defaultdict(float)
    for line in evidence.hot_lines:
        issued[key(line.site)] += line.ops_ms + _LAUNCH_MS * line.ops_per_step
    return [
        line
        for line in evidence.code_lines
        if line.part in parts and issued[key(line.site)] < _OPERATORS * line.ms_per_step
    ]


def lists_read(evidence: Evidence) -> Sequence[CallSite]:
    """`tolist()` in the loop. None where any tensor is made of lists outside the making of batches: an agent's
    simulator computes in Python too, and training needs what it says."""
    sites = () if isinstance(evidence.call_sites, Missing) else evidence.call_sites
    lists = [call for call in sites if call.kind in ("to_list", "from_list") and call.detail != "input_wait"]
    return [] if any(call.kind == "from_list" for call in lists) else lists


def named(site: Site) -> str:
    """`ngrams` (metrics.py:12)."""
    name = site.function.rpartition(".<locals>.")[2]
    return f"`{name}` ({site.file}:{site.line})"


def profilers_calls(evidence: Evidence) -> tuple[CallSite, ...]:
    """Those of a profiler of the job's own, of whose `step()` PD16 tells."""
    return () if isinstance(evidence.profiled, Missing) else evidence.profiled.cycles
