"""Trials in the three reports: predicted beside measured, and nothing recommended that did not help."""

from __future__ import annotations

import json
from dataclasses import replace

import jsonschema
import pytest
from diagnosis_samples import tried, two_findings, with_findings
from rich.console import Console

from perfdoctor.diagnosis.measured import Gain, Past, Trial, Trials, Verdict
from perfdoctor.report import wording
from perfdoctor.report.console import render_console
from perfdoctor.report.content import prepare
from perfdoctor.report.jsonreport import load_schema, render_json
from perfdoctor.report.markdown import render_markdown
from perfdoctor.report.verdict import verdict


def console(diagnosis, verbose: bool = True) -> str:
    terminal = Console(width=120, no_color=True)
    with terminal.capture() as capture:
        terminal.print(render_console(diagnosis, next_command="", verbose=verbose))
    return capture.get()


def test_a_finding_shows_predicted_and_measured_side_by_side() -> None:
    text = console(tried())
    assert "tried     speed-up 1.93x [1.86, 2.01] with etl.workers=3, predicted 1.8x to 2.2x" in text
    assert "speed-up 0.97x [0.94, 1.01] with gc.freeze; no difference shown: not recommended here" in text


def test_every_trial_is_a_row_whatever_its_outcome() -> None:
    content = prepare(tried())
    assert content.trials is not None
    rows = {row.remedy: row for row in content.trials.rows}
    assert rows["etl.workers=3"].measured == "1.93x [1.86, 2.01]" and rows["etl.workers=3"].mark == "✓"
    assert "upper bound only" in rows["etl.replay"].outcome
    assert (rows["threads=1"].mark, rows["threads=1"].outcome) == ("✗", "made it slower: not recommended here")
    assert rows["threads.passive"].outcome == "not tried: it needs a new launch, which was not made"
    assert rows["memory.malloc"].outcome == "could not be measured: another allocator stands in for glibc's"


def test_what_helped_together_is_said_and_how_to_keep_it() -> None:
    text = console(tried())
    assert "Together (etl.workers=3 and gc.no-explicit): speed-up 2.31x [2.20, 2.42], predicted" in text
    assert "To keep etl.workers=3:" in text and "num_workers=3)" in text
    assert "To keep gc.freeze" not in text and "To keep etl.replay" not in text
    assert "perfdoctor run --apply etl.workers=3,gc.no-explicit -- " in text


def test_the_verdict_ends_with_what_was_proven() -> None:
    both = "tried on the running job: speed-up 2.31x [2.20, 2.42] with etl.workers=3 and gc.no-explicit."
    assert verdict(tried()).endswith(both)
    trials = tried().trials
    assert trials is not None
    # The best one that can be kept: replayed batches are a bound.
    alone = replace(tried(), trials=replace(trials, together=None))
    assert verdict(alone).endswith("tried on the running job: speed-up 1.93x [1.86, 2.01] with etl.workers=3.")
    useless = tuple(trial for trial in trials.single if trial.verdict is not Verdict.HELPED)
    assert "tried" not in verdict(replace(tried(), trials=replace(trials, single=useless, together=None)))
    assert "tried" not in verdict(two_findings())


def test_past_predictions_stand_beside_new_ones() -> None:
    text = console(tried())
    assert "predictions on this machine were off by 6.2 % (median of 14 trials)" in text
    assert "Left out and repeated: 1 pair in which other processes had the CPU." in text


@pytest.mark.parametrize(
    ("past", "says"),
    [
        (Past(), None),
        (Past(None, 1), "had been compared with 1 trial: too few"),
        (Past(None, 4), "had been compared with 4 trials: too few"),
        (Past(0.12, 9), "were off by 12 % (median of 9 trials)"),
    ],
)
def test_a_report_without_trials_says_how_past_predictions_fared(past: Past, says: str | None) -> None:
    text = " ".join(console(replace(two_findings(), past=past)).split())
    assert says in text if says else "on this machine" not in text
    assert (says or "do not add them") in render_markdown(replace(two_findings(), past=past), next_command="")
    # Beside the trials where there are some, and not a second time.
    assert console(replace(tried(), past=past)).count("predictions on this machine") == 1


def test_without_a_prediction_past_ones_do_not_matter() -> None:
    assert prepare(replace(with_findings(two_findings()), past=Past(0.12, 9))).accuracy == ""


def test_a_difference_that_was_only_not_shown_is_not_called_useless() -> None:
    diagnosis = tried()
    assert diagnosis.trials is not None
    vague = replace(diagnosis.trials.single[3], gain=replace(diagnosis.trials.single[3].gain, high=1.2))
    content = prepare(replace(diagnosis, trials=replace(diagnosis.trials, single=(vague,))))
    assert content.trials is not None and content.trials.rows[0].outcome == "no difference shown"


def test_nothing_helped_nothing_to_apply() -> None:
    diagnosis = tried()
    assert diagnosis.trials is not None
    content = prepare(
        replace(diagnosis, trials=replace(diagnosis.trials, single=diagnosis.trials.single[3:], together=None))
    )
    assert content.trials is not None and (content.trials.apply, content.trials.keep) == ("", ())


def test_nothing_tried_says_why() -> None:
    nothing = replace(tried(), trials=Trials((), problem="the job ended before enough of it was seen"))
    text = console(nothing)
    assert "Nothing was tried: the job ended before enough of it was seen." in text
    assert "predicted  measured" not in text
    assert "Nothing was tried" in render_markdown(nothing, next_command="")


def test_a_job_that_ran_otherwise_meanwhile_is_told() -> None:
    assert "something else changed" not in console(tried())
    slower = Trial("gc.freeze", Verdict.HELPED, Gain(1.5, 1.4, 1.6, 8, 0, 10, 49.6), keep="gc.freeze()")
    text = " ".join(console(replace(tried(), trials=Trials((slower,)))).split())
    assert "Meanwhile a step without any change took 49.6 ms instead of the 24.8 ms before" in text


def test_launches_are_said_to_be_launches() -> None:
    launched = Trial("threads.passive", Verdict.HELPED, Gain(1.5, 1.2, 1.8, 4), keep="export OMP_WAIT_POLICY=PASSIVE")
    assert "starts: by 4 pairs of launches." in " ".join(console(replace(tried(), trials=Trials((launched,)))).split())


def test_markdown_has_the_table_and_the_lines() -> None:
    text = render_markdown(tried(), next_command="")
    assert "| ✓ | `etl.workers=3` | 1.8x to 2.2x | 1.93x [1.86, 2.01] | helped: batches are made" in text
    assert "**Tried:** speed-up 1.93x" in text
    assert "```bash\nperfdoctor run --apply etl.workers=3,gc.no-explicit" in text


def test_json_meets_its_schema_and_says_it_all() -> None:
    document = json.loads(render_json(tried()))
    jsonschema.validate(document, load_schema())
    assert document["trials"]["together"]["gain"]["factor"] == 2.31
    assert [trial["verdict"] for trial in document["trials"]["single"]][3:5] == ["no-difference", "hurt"]


def test_a_run_without_trials_does_not_speak_of_them() -> None:
    assert "trial" not in console(two_findings()).lower()
    assert json.loads(render_json(two_findings()))["trials"] is None


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (1.5, 1.8, "1.5x to 1.8x"),
        (2.08, 2.11, "2.1x"),
        (1.0, 1.3, "up to 1.3x"),
        (1.0, 1.05, "up to 1.05x"),
        (3.0, 400.0, "at least 3.0x"),
        (200.0, 900.0, "more than 100x"),
    ],
)
def test_predicted_factors_in_words(low: float, high: float, text: str) -> None:
    assert wording.factors(low, high) == text


@pytest.mark.parametrize(
    ("factor", "low", "high", "text"),
    [
        (1.714, 1.66, 1.763, "1.71x [1.66, 1.76]"),
        (12.35, 11.8, 13.0, "12.3x [11.8, 13.0]"),
        (120.4, 99, 150, "120x [99, 150]"),
    ],
)
def test_measured_factors_in_words(factor: float, low: float, high: float, text: str) -> None:
    assert wording.interval(factor, low, high) == text


def test_a_start_is_told_with_the_step_that_earns_it_back() -> None:
    gain = Gain(1.25, 1.2, 1.3, 8, steps=10, step_ms=50.0)
    compiled = Trial(
        "compile.model", Verdict.HELPED, gain, text="the model is compiled", keep="model = torch.compile(model)",
        numerics=True, start_s=12.0, caution="results differ",
    )  # fmt: skip
    diagnosis = replace(two_findings(), trials=Trials((compiled,)))
    text = " ".join(console(diagnosis).split())
    assert "1.25x [1.20, 1.30] helped: the model is compiled, which took 12 s and pays after 1,200 steps" in text
    assert "# results differ model = torch.compile(model)" in text
    for verdict_, gain, says in (
        (Verdict.NO_DIFFERENCE, Gain(1.0, 0.95, 1.05, 8, steps=10, step_ms=50.0), "no difference shown"),
        (Verdict.HURT, Gain(0.9, 0.8, 0.95, 8, steps=10, step_ms=50.0), "made it slower: not recommended here"),
    ):
        useless = replace(compiled, verdict=verdict_, gain=gain)
        text = " ".join(console(replace(two_findings(), trials=Trials((useless,)))).split())
        assert f"{says}; its start took 12 s" in text and "pays after" not in text
    jsonschema.validate(json.loads(render_json(diagnosis)), load_schema())
