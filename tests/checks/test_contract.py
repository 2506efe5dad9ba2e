"""What every check owes, a third party's too: documentation, five honest outcomes, and savings in order."""

from __future__ import annotations

import ast
import copy
import dataclasses
import functools
import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from ills import ILL
from samples import empty, healthy, on_gpu
from sections import missing_sections

from perfdoctor.diagnosis.findings import Finding, Measurement
from perfdoctor.diagnosis.outcomes import Check, OutcomeKind
from perfdoctor.diagnosis.registry import Registered, discover
from perfdoctor.diagnosis.thresholds import thresholds
from perfdoctor.evidence.model import Evidence, Missing
from perfdoctor.report import wording

GUIDE = {
    "PD01": "backend",
    "PD02": "cudnn",
    "PD03": "etl",
    "PD04": "gc",
    "PD05": "batch-size",
    "PD06": "shared-model",
    "PD07": "dtype",
    "PD08": "workspaces",
    "PD09": "network",
    "PD10": "cpu-ops",
    "PD11": "vector-extensions",
    "PD12": "other-processes",
    "PD13": "omp-threads",
}
"""The thirteen steps of Deeplearning4j's guide, in its order."""
REGISTERED = discover()
EVERY_CHECK = pytest.mark.parametrize("entry", REGISTERED, ids=lambda entry: entry.check.code)
PARTS = [f.name for f in dataclasses.fields(Evidence) if f.name not in ("rank", "job", "machine", "probe_faults")]
"""Of the evidence: those that may be missing."""
EVERY_ILLNESS = pytest.mark.parametrize("illness", ILL)


def _module(check: Check) -> ModuleType:
    return importlib.import_module(check.examine.__module__)


def _sources(check: Check) -> list[Path]:
    """The check's file, or those of its package, and what several checks share."""
    file = Path(_module(check).__file__ or "")
    own = sorted(file.parent.glob("*.py")) if file.name == "__init__.py" else [file]
    return [*own, *sorted((Path(__file__).parent.parent.parent / "checks" / "_shared").glob("*.py"))]


@functools.cache
def _findings(illness: str) -> list[tuple[Check, Evidence, Finding]]:
    evidence = ILL[illness]
    return [
        (entry.check, evidence, finding)
        for entry in REGISTERED
        for finding in entry.check.examine(evidence, entry.check.limits).findings
    ]


# ---------------------------------------------------------------------------------------------------------
# The module


@EVERY_CHECK
def test_the_documentation_has_all_its_sections(entry: Registered) -> None:
    assert missing_sections(entry.doc) == ()


@EVERY_CHECK
def test_the_code_and_the_name_are_those_of_the_guide(entry: Registered) -> None:
    assert re.fullmatch(r"PD\d\d", entry.check.code)
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", entry.check.name)
    assert entry.check.title
    assert GUIDE.get(entry.check.code, entry.check.name) == entry.check.name


def test_every_step_of_the_guide_has_a_check() -> None:
    assert [entry.check.code for entry in REGISTERED if entry.check.code in GUIDE] == list(GUIDE)


def test_codes_names_and_aliases_are_unique() -> None:
    assert len({entry.check.code for entry in REGISTERED}) == len(REGISTERED)
    names = [name for entry in REGISTERED for name in (entry.check.name, *entry.check.aliases)]
    assert len(set(names)) == len(names)
    assert {"data-loading", "memory", "layers"} < set(names)


@EVERY_CHECK
def test_every_threshold_has_a_reason(entry: Registered) -> None:
    limits = entry.check.limits
    assert dataclasses.is_dataclass(limits)
    assert type(limits).__dataclass_params__.frozen
    assert [threshold.name for threshold in thresholds(entry.check) if not threshold.reason] == []


@EVERY_CHECK
def test_a_check_imports_the_api_its_siblings_and_the_standard_library(entry: Registered) -> None:
    for file in _sources(entry.check):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name.partition(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            else:
                is_above = (
                    isinstance(node, ast.ImportFrom)
                    and node.level > 1
                    and not (node.module or "").startswith("_shared")
                )
                assert not is_above, f"{file.name} imports from above"
                continue
            foreign = [
                name
                for name in names
                if not name.startswith("perfdoctor.api.") and name.partition(".")[0] not in sys.stdlib_module_names
            ]
            assert foreign == [], f"{file.name} imports {foreign}"


# ---------------------------------------------------------------------------------------------------------
# The outcomes


@EVERY_CHECK
@pytest.mark.parametrize("run", [healthy, on_gpu], ids=["cpu", "gpu"])
def test_a_healthy_run_is_clear_with_numbers(entry: Registered, run: object) -> None:
    outcome = entry.check.examine(run(), entry.check.limits)  # type: ignore[operator]
    assert outcome.kind in (OutcomeKind.CLEAR, OutcomeKind.NOT_APPLICABLE), outcome
    assert outcome.kind is OutcomeKind.NOT_APPLICABLE or outcome.measurements
    assert wording.fill_reason(outcome.reason, outcome.measurements)


@EVERY_CHECK
def test_without_evidence_no_check_claims_health(entry: Registered) -> None:
    outcome = entry.check.examine(empty(), entry.check.limits)
    assert outcome.kind in (OutcomeKind.CANNOT_TELL, OutcomeKind.NOT_APPLICABLE)
    assert outcome.reason


@EVERY_CHECK
@pytest.mark.parametrize("run", [healthy, on_gpu], ids=["cpu", "gpu"])
def test_one_missing_part_crashes_nothing_and_makes_no_finding(entry: Registered, run: object) -> None:
    for part in PARTS:
        evidence = dataclasses.replace(run(), **{part: Missing("it was not seen", "look")})  # type: ignore[operator]
        outcome = entry.check.examine(evidence, entry.check.limits)
        assert outcome.kind is not OutcomeKind.FOUND, part
        assert wording.fill_reason(outcome.reason, outcome.measurements), part


@EVERY_CHECK
def test_a_check_is_a_function_of_the_evidence(entry: Registered) -> None:
    for evidence in (healthy(), on_gpu(), empty(), *ILL.values()):
        before = copy.deepcopy(evidence)
        first = entry.check.examine(evidence, entry.check.limits)
        assert first == entry.check.examine(evidence, entry.check.limits)
        assert evidence == before


# ---------------------------------------------------------------------------------------------------------
# The findings


def test_every_check_has_an_ill_run() -> None:
    """A new check is held to what follows only when `ills.py` has evidence for its findings."""
    ours = {entry.check.code for entry in REGISTERED if entry.check.examine.__module__.startswith("perfdoctor.checks.")}
    assert ours == {illness.partition(".")[0] for illness in ILL}


@EVERY_ILLNESS
def test_an_ill_run_has_its_finding_and_for_its_check_no_other(illness: str) -> None:
    mine = [finding.id for check, _, finding in _findings(illness) if illness.startswith(check.code)]
    assert mine == [illness]


@EVERY_ILLNESS
def test_finding_ids_are_the_checks_code_and_a_kebab_name(illness: str) -> None:
    for check, _, finding in _findings(illness):
        assert re.fullmatch(rf"{check.code}\.[a-z][a-z0-9]*(-[a-z0-9]+)*", finding.id)


@EVERY_ILLNESS
def test_savings_are_in_order_and_within_the_step(illness: str) -> None:
    for _, evidence, finding in _findings(illness):
        saved = finding.savings
        assert not isinstance(evidence.step, Missing)
        assert 0 <= saved.low_ms <= saved.high_ms <= saved.ceiling_ms <= saved.of(evidence.step)
        assert saved.share == pytest.approx(saved.ceiling_ms / saved.of(evidence.step))
        assert saved.ceiling_ms > 0


@EVERY_ILLNESS
def test_every_text_fills_with_the_findings_own_numbers(illness: str) -> None:
    for _, _, finding in _findings(illness):
        fix = finding.fix
        texts = (finding.message, finding.reasoning, fix.text, fix.code, fix.risk, finding.savings.method)
        for template in texts:
            assert "unknown" not in wording.fill(template, finding.evidence).split()
        assert finding.message and finding.reasoning and fix.text and finding.savings.method


@EVERY_ILLNESS
def test_a_message_fits_a_line_of_a_report(illness: str) -> None:
    for _, _, finding in _findings(illness):
        assert len(wording.fill(finding.message, finding.evidence)) <= 110


_BARE_COUNT = re.compile(r"\{(\w+)\} (?:(?!of |is )[a-z-]+ )?(?!is\b)[A-Za-z-]+s\b")
_NEVER_ONE = {"PD05.factor", "PD05.times", "PD06.threads"}
"""Nothing is said about a batch times one, or about one thread that calls a model."""


def _counts_without_noun(check: Check, template: str, measurements: tuple[Measurement, ...]) -> set[str]:
    counts = {measurement.name for measurement in measurements if measurement.unit == "count"}
    found = {match.group(1) for match in _BARE_COUNT.finditer(template)}
    return {f"{check.code}.{name}" for name in found & counts} - _NEVER_ONE


@EVERY_ILLNESS
def test_a_count_in_a_sentence_brings_its_noun(illness: str) -> None:
    """`{reads:scalar}`, so that no report says "1 scalars"."""
    for check, _, finding in _findings(illness):
        for template in (finding.message, finding.reasoning, finding.fix.text, finding.fix.risk):
            assert _counts_without_noun(check, template, finding.evidence) == set(), template


@EVERY_CHECK
@pytest.mark.parametrize("run", [healthy, on_gpu], ids=["cpu", "gpu"])
def test_a_count_in_a_clear_outcome_brings_its_noun(entry: Registered, run: object) -> None:
    outcome = entry.check.examine(run(), entry.check.limits)  # type: ignore[operator]
    assert _counts_without_noun(entry.check, outcome.reason, outcome.measurements) == set()


@EVERY_ILLNESS
def test_measurements_have_unique_names(illness: str) -> None:
    for _, _, finding in _findings(illness):
        names = [measurement.name for measurement in finding.evidence]
        assert len(names) == len(set(names))


def test_python_in_a_fix_is_python() -> None:
    fixes = [(finding.fix, finding.evidence) for illness in ILL for _, _, finding in _findings(illness)]
    codes = [wording.fill(fix.code, evidence) for fix, evidence in fixes if fix.code and fix.language == "python"]
    assert [ast.parse(code) for code in codes], "a SyntaxError names the line"
