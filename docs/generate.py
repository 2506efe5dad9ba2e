"""Writes what is made from the program: pages of checks and of trust, the JSON Schema of reports, and pictures of a
real report: `make docs`. Tests hold them current."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME

from perfdoctor.config.settings import Config
from perfdoctor.diagnosis.diagnoses import Diagnosis
from perfdoctor.diagnosis.integrity import PAGES
from perfdoctor.diagnosis.registry import discover
from perfdoctor.recording.directory import RunDirectory
from perfdoctor.report.console import render_console
from perfdoctor.report.explain import explain_markdown, trust_markdown
from perfdoctor.report.html.page import render_html
from perfdoctor.report.jsonreport import load_schema
from perfdoctor.trials.judge import judge

CHECKS = Path(__file__).parent / "checks"
TRUST = Path(__file__).parent / "trust.md"
OPTIONS = Path(__file__).parent / "command-line.md"
SCHEMA = Path(__file__).parent / "report.schema.json"
PICTURES = Path(__file__).parent / "pictures"
RECORDING = Path(__file__).parents[1] / "tests" / "recordings" / "demo"
"""Of `DEMO`, as it is run by `make demo`."""
DEMO = Path(__file__).parents[1] / "sample_configs" / "demo_train.py"
THEMES = {"report.svg": DEFAULT_TERMINAL_THEME, "report-dark.svg": SVG_EXPORT_THEME}
PHOTOGRAPHS = {"page.png": "light", "page-dark.png": "dark"}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SIZE = "1100,935"
NEXT = "perfdoctor check --trial train.py"
_HEAD = "<!-- Made by `make docs` from {module}; `perfdoctor explain {code}` prints the same. -->\n"


def pages() -> dict[str, str]:
    """File name -> text, one page per check."""
    return {
        f"{entry.check.code}-{entry.check.name}.md": _HEAD.format(
            module=_source(entry.check.examine.__module__),
            code=entry.check.code,
        )
        + "\n"
        + explain_markdown(entry.doc, entry.check)
        for entry in discover()
    }


def _source(module: str) -> str:
    """`checks/gc.py`, `checks/etl/__init__.py`."""
    file = Path(sys.modules[module].__file__ or "")
    return file.relative_to(Path(__file__).parent.parent).as_posix()


def trust() -> str:
    """The page about what limits the numbers of a run."""
    head = (
        "<!-- Made by `make docs` from perfdoctor/diagnosis/integrity.py; "
        "`perfdoctor explain PD92` prints the same. -->\n"
        "\n# How far to trust a run\n\nWhat a report says under this title is no finding about the job, but about the "
        "numbers themselves.\n"
    )
    return "\n".join([head, *(trust_markdown(code) for code in PAGES)])


def options() -> str:
    """The help of every command, as a terminal of 80 columns shows it."""
    top = _help()
    names = re.findall(r"^  (\w+)  ", top.partition("Commands:")[2], flags=re.M)
    head = "# All options\n\nEvery option can also be set as a variable: `PERFDOCTOR_CHECK_STEPS=500`.\n"
    parts = [f"```\n{top}\n```\n", *(f"## {name}\n\n```\n{_help(name)}\n```\n" for name in names)]
    return "\n".join([head, *parts])


def _help(*words: str) -> str:
    command = [sys.executable, "-m", "perfdoctor", *words, "--help"]
    environment = {**os.environ, "COLUMNS": "80", "TERMINAL_WIDTH": "80", "NO_COLOR": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return done.stdout.replace("python -m perfdoctor", "perfdoctor").strip()


def schema() -> str:
    """What `--output json` writes, for other programs."""
    return json.dumps(load_schema(), indent=2) + "\n"


@contextmanager
def _demo() -> Iterator[Diagnosis]:
    """With the script where the job found it, so that its lines are shown."""
    diagnosis = judge(RunDirectory(RECORDING), Config())
    job = diagnosis.evidence.job
    with tempfile.TemporaryDirectory() as place:
        for finding in diagnosis.ranked:
            if finding.location is not None and Path(finding.location.file).suffix == ".py":
                copy = Path(place, finding.location.file)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(DEMO, copy)
                os.utime(copy, (0, 0))
        yield replace(diagnosis, evidence=replace(diagnosis.evidence, job=replace(job, cwd=place)))


def pictures() -> dict[str, str]:
    """File name -> SVG: what `perfdoctor check` prints about the demo, on a light and on a dark terminal."""
    console = Console(
        file=io.StringIO(), record=True, width=100, force_terminal=True, color_system="truecolor", legacy_windows=False
    )
    with _demo() as diagnosis:
        console.print(render_console(diagnosis, next_command=NEXT, full_command="perfdoctor report -v RUN"))
    return {
        name: console.export_svg(title="perfdoctor check train.py", theme=theme, clear=False)
        for name, theme in THEMES.items()
    }


def page() -> str:
    """What `--output html` writes about the demo."""
    with _demo() as diagnosis:
        return render_html(diagnosis, next_command=NEXT, recorded=[RECORDING])


def photographs(folder: Path) -> None:
    """The top of that page, light and dark, as a browser draws it; those that are there stay where there is none."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"no {' or '.join(BROWSERS)}: the pictures of the page are as they were", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "page.html")
        file.write_text(page(), encoding="utf-8")
        for name, theme in PHOTOGRAPHS.items():
            options = (
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                f"--user-data-dir={place}/own",
            )
            target = (f"--window-size={SIZE}", f"--screenshot={folder / name}", f"{file.as_uri()}#theme={theme}")
            subprocess.run([browser, *options, *target], check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    CHECKS.mkdir(exist_ok=True)
    for name, text in pages().items():
        (CHECKS / name).write_text(text)
    TRUST.write_text(trust())
    SCHEMA.write_text(schema())
    OPTIONS.write_text(options())
    PICTURES.mkdir(exist_ok=True)
    for name, text in pictures().items():
        (PICTURES / name).write_text(text)
    photographs(PICTURES)
