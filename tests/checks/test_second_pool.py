"""OpenBLAS's threads beside torch's team."""

from __future__ import annotations

import pytest
from ill_runs.omp_threads import POOL_LINE, second_pool
from perfdoctor.checks.omp_threads import CHECK
from samples import HOT_LINES, asked, is_clear, number, step, with_

from perfdoctor.diagnosis.findings import Severity
from perfdoctor.evidence.model import CodeLine, Parts

examined, found = asked(CHECK)


def test_it_is_told_at_the_line_that_computes_without_torch() -> None:
    finding = found(second_pool())
    assert (finding.id, finding.severity) == ("PD13.second-pool", Severity.ERROR)
    assert finding.location is not None and finding.location.line == POOL_LINE.line
    assert number(finding, "cores") == 0.9
    assert finding.fix.remedies == ("blas.one-thread",)
    assert finding.savings.low_ms < finding.savings.high_ms


def test_a_line_that_issues_operators_is_not_the_one() -> None:
    """Its operators may have waited for a CPU."""
    seen = second_pool()
    slowed = CodeLine(HOT_LINES[0].site, "forward", True, 60.0, 0.5)
    lines = (*seen.code_lines, slowed)  # type: ignore[misc]
    finding = found(with_(seen, code_lines=lines))
    assert finding.location is not None and finding.location.line == POOL_LINE.line


def test_a_tracker_computes_without_torch_whatever_its_line_issues() -> None:
    seen = second_pool()
    logged = CodeLine(HOT_LINES[0].site, "logging", False, 600.0, 0.5)
    finding = found(with_(seen, code_lines=(*seen.code_lines, logged)))  # type: ignore[misc]
    assert finding.location is not None and finding.location.line == HOT_LINES[0].site.line
    assert finding.fix.text.startswith("Log every 50th step")


def test_threads_that_may_have_computed_are_an_opportunity() -> None:
    waits = step(Parts(input_wait=15.0, forward=4.0, backward=4.0, optimizer=1.0))
    assert found(second_pool(step=waits)).severity is Severity.NOTE


@pytest.mark.parametrize(
    "changes",
    [
        {"cores": 0.1},
        {"waits": 0.05},
        {"threads__intra_op": 1},
        {"machine__affinity_cpus": 8, "machine__logical_cpus": 8},
        {"ops__pools": ()},
    ],
)
def test_where_there_are_cpus_for_all_it_is_clear(changes: dict[str, object]) -> None:
    assert is_clear(examined(second_pool(**changes)))  # type: ignore[arg-type]
