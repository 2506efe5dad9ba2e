from __future__ import annotations

from dataclasses import dataclass, replace

from sections import SECTIONS, missing_sections

from perfdoctor.diagnosis.outcomes import Check, cannot_tell
from perfdoctor.diagnosis.thresholds import Threshold, thresholds
from perfdoctor.report.explain import explain_markdown, explain_text, parse

DOC = """Time that the loop waits for data.

    What it looks at
    ----------------
    The wait for each batch, and what the workers do meanwhile. This sentence is long enough to be wrapped
    at the width of a terminal.

    - one cause: `num_workers` is too small, which again takes many words to say so that the line is wrapped
    - another

    Why it costs time
    -----------------
    The model waits.

    Example
    -------
    A loader without workers:

        loader = DataLoader(dataset)

        for batch in loader:
            train(batch)

    and one with them.

    How to fix
    ----------
    ```bash
    export OMP_NUM_THREADS=1
    ----------
    ```

    When it stays silent
    --------------------
    When the loader keeps up.

    Limits
    ------
    None known.

    References
    ----------
    - https://pytorch.org/docs/stable/data.html
    """


@dataclass(frozen=True, slots=True)
class Limits:
    min_share: float = 0.05
    """Below, it is noise; this reason is long enough
    for a second line."""
    policy: str = "lax"
    count_idle: bool = True


CHECK = Check(
    code="PD03", name="etl", title="data loading", limits=None, examine=lambda evidence, limits: cannot_tell("a sample")
)
WITH_LIMITS = replace(CHECK, limits=Limits())


def test_the_sections_are_found() -> None:
    explanation = parse(DOC)
    assert explanation.summary == "Time that the loop waits for data."
    assert tuple(section.title for section in explanation.sections) == SECTIONS
    assert explanation.sections[1].body == "The model waits."
    assert missing_sections(DOC) == ()


def test_a_section_that_is_absent_empty_or_misplaced_is_named() -> None:
    assert "Limits" in missing_sections(DOC.replace("None known.", ""))
    assert missing_sections("Only a summary.") == SECTIONS
    swapped = DOC.replace("Limits\n    ------", "X\n    ------").replace("Example\n    -------", "Limits\n    -------")
    assert missing_sections(swapped) != ()


def test_the_terminal_gets_wrapped_prose_and_whole_code() -> None:
    text = explain_text(DOC, CHECK)
    assert text.startswith(
        "PD03 etl: data loading\n\nTime that the loop waits for data.\n\nWhat it looks at\n  The wait"
    )
    assert "      loader = DataLoader(dataset)\n\n      for batch in loader:\n          train(batch)\n" in text
    assert "\n    many words" not in text
    assert "   • another" in text
    assert "\n  and one with them." in text
    assert "```" not in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_list_items_hang() -> None:
    lines = explain_text(DOC, CHECK).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("   • one cause"))
    assert lines[start + 1].startswith("     ")
    assert lines[start + 2] == "   • another"


def test_markdown_gets_headings_and_fences() -> None:
    text = explain_markdown(DOC, CHECK)
    assert text.startswith("# PD03 etl: data loading\n\nTime that")
    assert "## What it looks at\n\nThe wait" in text
    assert "```python\nloader = DataLoader(dataset)\n\nfor batch in loader:\n    train(batch)\n```" in text
    assert "```bash\nexport OMP_NUM_THREADS=1\n----------\n```" in text
    assert "\n\n\n" not in text


def test_an_empty_docstring_gives_a_title() -> None:
    assert explain_text("", CHECK) == "PD03 etl: data loading\n"


def test_thresholds_come_with_their_reasons_under_the_name_of_the_configuration() -> None:
    reason = "Below, it is noise; this reason is long enough for a second line."
    assert thresholds(WITH_LIMITS) == (
        Threshold("min-share", 0.05, reason),
        Threshold("policy", "lax", ""),
        Threshold("count-idle", True, ""),
    )
    assert thresholds(CHECK) == ()


def test_the_page_lists_thresholds_as_the_configuration_writes_them() -> None:
    page = explain_markdown(DOC, WITH_LIMITS)
    assert "## Thresholds\n\nTo be changed under `[rules.PD03]` in perfdoctor.toml." in page
    assert "- `min-share = 0.05`: Below, it is noise;" in page
    assert '- `policy = "lax"`\n- `count-idle = true`' in page
    assert "Thresholds" not in explain_markdown(DOC, CHECK)
