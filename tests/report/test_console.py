from __future__ import annotations

import io
import re
from dataclasses import replace

import diagnosis_samples as samples
import pytest
from rich.cells import cell_len
from rich.console import Console

from perfdoctor.diagnosis.diagnoses import Diagnosis
from perfdoctor.diagnosis.findings import Fix, Severity
from perfdoctor.diagnosis.outcomes import not_applicable
from perfdoctor.report.console import MOST_LINES, render_console

WIDTHS = (40, 80, 120, 200)


def shown(diagnosis: Diagnosis, width: int = 100, verbose: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width, record=True, force_terminal=False)
    console.print(render_console(diagnosis, next_command="perfdoctor report RUN", verbose=verbose))
    return console.export_text()


def assert_order(text: str, *pieces: str) -> None:
    places = [text.find(piece) for piece in pieces]
    assert -1 not in places, pieces[places.index(-1)]
    assert places == sorted(places)


def test_the_whole_report_comes_in_the_promised_order() -> None:
    assert_order(
        shown(samples.two_findings(), verbose=True),
        "The steady step takes 24.8 ms",
        "Where the steady step goes (24.8 ms)",
        "█████",
        "waiting for data        14.2 ms   57 %",
        "1. [✗] PD03.too-few-workers",
        "2. [!] PD04.explicit-collect",
        "[✗] PD03 etl",
        "[✓] PD07 dtype",
        "[-] PD08 workspaces",
        "[?] PD13 omp-threads",
        "How far to trust this run",
        "1 of 5 checks clear, 2 findings (1 error, 1 warning)",
        "The estimates overlap, do not add them: both fixes together",
        "Next: perfdoctor report RUN",
    )


@pytest.mark.parametrize("verbose", [False, True])
def test_opportunities_have_a_section_of_their_own(verbose: bool) -> None:
    both = samples.two_findings()
    first, second = both.ranked
    mixed = samples.with_findings(both, first, replace(second, severity=Severity.NOTE))
    assert_order(
        shown(mixed, verbose=verbose),
        "What to fix, largest saving first",
        first.id,
        "Opportunities: nothing",
        second.id,
    )
    assert "Opportunities" not in shown(both, verbose=verbose)


def test_a_finding_shows_place_cause_evidence_saving_fix_and_risk_in_order() -> None:
    assert_order(
        shown(samples.two_findings(), verbose=True),
        "high confidence",
        "The loop waits 14.2 ms per step for the next batch, 57 % of the step.",
        "train.py:41 in main, all ranks",
        "A worker needs 21.9 ms",
        "arrivals that found the queue empty  95 %",
        "11 to 13 ms per step",
        "Basis: the measured fetch time",
        "Use 3 worker processes instead of 1",
        "    loader = DataLoader(\n        dataset,",
        "**{'batch_size': 32},",
        "Each worker holds a copy",
    )


def test_clear_checks_show_the_numbers_that_clear_them() -> None:
    text = shown(samples.healthy(), verbose=True)
    assert "clear: the loader keeps up (wait 10.0 µs)" in text
    assert "clear: collections take 0 % of the step" in text
    assert "2 of 2 checks clear, no findings." in text
    assert "do not add" not in text


def test_without_a_step_there_is_no_anatomy_but_everything_else() -> None:
    text = shown(samples.no_step())
    assert text.startswith("The job failed with exit code 1, and no steady step was measured")
    assert "Where the steady step goes" not in text
    assert "it failed with exit code 1; ValueError: boom" in text
    assert "[✗] PD90 too-few-steps: No step was seen." in text


def test_what_all_checks_say_alike_is_said_once() -> None:
    text = shown(samples.no_step())
    assert f"[?] all {len(samples.CHECKS)} checks cannot tell: there is no steady step\n" in text
    assert text.count("cannot tell: there is no steady step") == 1
    assert shown(samples.no_step(), verbose=True).count("cannot tell: there is no steady step") == len(samples.CHECKS)


def test_what_most_checks_say_alike_is_said_once_beside_the_others() -> None:
    unseen = samples.no_step()
    idle = replace(unseen.checks[0], outcome=not_applicable("nothing is compiled"))
    text = shown(replace(unseen, checks=(idle, *unseen.checks[1:], unseen.checks[-1])))
    assert f"{len(samples.CHECKS)} of {len(samples.CHECKS) + 1} checks cannot tell: there is no steady step\n" in text
    assert "1 check not applicable" in text


def test_trouble_is_shown_whole() -> None:
    text = shown(samples.troubled(), width=120, verbose=True)
    assert "[☠] PD07 dtype       crashed: KeyError: '{x}'" in text
    assert "second line" in text
    assert "1 finding suppressed by the configuration" in text
    assert "needed for the leak test | see #12" in text
    assert "[!] PD92 contended-machine: Other processes used 42 % of the CPU time." in text
    assert "DataLoader.__init__ was switched off after AttributeError: no [bold]site[/bold]" in text
    assert "rank 3 only" in text
    assert "1 suppressed, 1 not applicable, 1 cannot tell, 1 crashed" in text


@pytest.mark.parametrize("verbose", [False, True])
def test_text_that_looks_like_markup_is_printed_as_it_is(verbose: bool) -> None:
    text = shown(samples.troubled(), verbose=verbose)
    assert "a|b waits 14.2 ms in [red]x[/red] `y` <module>." in text
    assert "\x1b" not in text


def test_verbose_adds_measurements_and_the_environment() -> None:
    brief, full = (shown(samples.troubled(), verbose=verbose) for verbose in (False, True))
    for extra in ("python train.py --name 'a b'", "EPYC 9354", "OMP_NUM_THREADS=1", "gc: 2.40 ms"):
        assert extra in full
        assert extra not in brief


@pytest.mark.parametrize("make", samples.ALL, ids=lambda make: make.__name__)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("verbose", [False, True])
def test_no_line_is_too_long_or_ends_in_blanks(make: object, width: int, verbose: bool) -> None:
    assert callable(make)
    for line in shown(make(), width, verbose=verbose).splitlines():
        assert cell_len(line) <= min(width, 120)
        assert line == line.rstrip()


@pytest.mark.parametrize("width", WIDTHS)
def test_no_word_is_lost_at_any_width(width: int) -> None:
    wide = re.findall(r"[\w.,:/<%=\[\]'*()-]+", shown(samples.two_findings(), 120, verbose=True))
    joined = "".join(shown(samples.two_findings(), width, verbose=True).split())
    assert [word for word in wide if word not in joined] == []


def test_long_code_is_folded_and_not_cropped() -> None:
    line = "x = f(" + ", ".join(f"'argument {i}'" for i in range(30)) + ")"
    finding = replace(samples.WORKERS, fix=Fix("do it", line))
    text = shown(samples.with_findings(samples.two_findings(), finding), 80, verbose=True)
    assert line in "".join(piece.removeprefix("    ") for piece in text.splitlines())


def test_colour_changes_no_character() -> None:
    def printed(**options: object) -> str:
        console = Console(file=io.StringIO(), width=80, record=True, **options)  # type: ignore[arg-type]
        console.print(render_console(samples.two_findings(), next_command="x"))
        return console.export_text()

    coloured = printed(force_terminal=True, color_system="truecolor")
    assert coloured == printed(force_terminal=False, no_color=True)


# ---------------------------------------------------------------------------------------------------------
# As long as a screen


def findings_of(text: str) -> list[list[str]]:
    """The lines of each finding of the brief report."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if re.match(r"\d+\. \[", line):
            found.append([line])
        elif found and found[-1] and line.startswith("   "):
            found[-1].append(line)
        elif found and line and not line.startswith("Opportunities"):
            break
    return found


def test_the_brief_report_says_what_it_costs_where_it_is_and_what_to_do() -> None:
    text = shown(samples.two_findings())
    assert_order(
        text,
        "The steady step takes 24.8 ms",
        "Where the steady step goes (24.8 ms)",
        "█████",
        "waiting for data       14.2 ms  57 %",
        "What to fix, largest saving first",
        "1. [✗] PD03.too-few-workers (error): The loop waits 14.2 ms per step",
        "where train.py:41",
        "gain  speed-up 1.8x to 2.2x, saves 11 to 13 ms per step",
        "fix   Use 3 worker processes instead of 1",
        "2. [!] PD04.explicit-collect (warning, medium confidence)",
        "[✓] 1 check clear: dtype",
        "[-] 1 check not applicable: workspaces",
        "[?] omp-threads cannot tell: no threads were recorded",
        "Trust: 200 steady steps, mean ±1.8 %; other processes used 0.30 cores; perfdoctor's overhead <0.1 %.",
        "Next: perfdoctor report RUN",
    )
    assert len(text.splitlines()) <= 50


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("tried", [False, True])
def test_a_finding_has_six_lines_at_most(width: int, tried: bool) -> None:
    long = replace(
        samples.WORKERS,
        message=" ".join(["the loop waits {wait_ms} per step"] * 30),
        fix=Fix(" ".join(["use 3 worker processes instead of 1"] * 30), "first\nsecond"),
        savings=replace(samples.WORKERS.savings, claimed=0.5),
    )
    base = samples.tried() if tried else samples.two_findings()
    for lines in findings_of(shown(samples.with_findings(base, long, samples.EXPLICIT_GC), width)):
        assert len(lines) <= MOST_LINES
        assert any(line.startswith("   fix") for line in lines)


def test_short_code_is_the_fix_with_its_sentence_where_both_fit() -> None:
    def fix_of(fix: Fix) -> list[str]:
        (lines,) = findings_of(shown(samples.with_findings(samples.two_findings(), replace(samples.WORKERS, fix=fix))))
        start = next(number for number, line in enumerate(lines) if line.startswith("   fix"))
        return [line[9:] for line in lines[start:]]

    assert fix_of(Fix("use it. Really", "# a comment\ndo(it)")) == ["Use it.", "do(it)"]
    assert fix_of(Fix("use it", "do(it)\ndo(that)")) == ["do(it)", "do(that)"]
    assert fix_of(Fix("use it", "for it in them:\n    do(it)\ndone()")) == ["Use it."]


def test_an_opportunity_is_told_in_five_lines() -> None:
    both = samples.two_findings()
    noted = samples.with_findings(both, both.ranked[0], replace(both.ranked[1], severity=Severity.NOTE))
    _, note = findings_of(shown(noted))
    assert "[i] PD04.explicit-collect (medium confidence): gc.collect() runs 0.5" in note[0]
    assert [line.split()[0] for line in note if line.startswith("   ") and line[3] != " "][-2:] == ["gain", "fix"]
    assert len(note) <= 5


def test_what_limits_trust_stays_visible() -> None:
    text = shown(samples.troubled())
    assert "[!] PD92 contended-machine: Other processes used 42 % of the CPU time." in text
    assert "DataLoader.__init__ was switched off after AttributeError" in text
    assert "[☠] dtype crashed: KeyError: '{x}'" in text
    assert (
        "1 finding suppressed by the configuration: PD04.explicit-collect (needed for the leak test | see #12)"
        in " ".join(text.split())
    )
    assert "it failed with exit code 1; ValueError: boom" in shown(samples.no_step())


def test_it_says_how_to_see_everything() -> None:
    def printed(verbose: bool) -> str:
        console = Console(file=io.StringIO(), width=100, record=True)
        full = "perfdoctor report -v RUN"
        console.print(
            render_console(samples.healthy(), next_command="x", full_command=full, verbose=verbose),
        )
        return console.export_text()

    assert "All numbers: perfdoctor report -v RUN" in printed(False)
    assert "perfdoctor report -v RUN" not in printed(True)


def test_trials_take_a_line_each() -> None:
    text = shown(samples.tried())
    assert "[✓]  etl.workers=3" in text
    assert re.search(r"gc\.freeze +0\.97x \[0\.94, 1\.01\]", text)
    assert "[-] threads.passive: not tried: it needs a new launch" in text
    assert "Together (etl.workers=3 and gc.no-explicit): speed-up 2.31x" in text
    assert "perfdoctor run --apply etl.workers=3,gc.no-explicit" in text
    assert len(text.splitlines()) <= 50
