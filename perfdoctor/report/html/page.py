"""One HTML file: templates, styles, scripts and data in it, and nothing that it would have to fetch."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2

from ...diagnosis.diagnoses import Diagnosis
from ...version import VERSION
from .. import wording
from ..content import prepare
from ..verdict import doubts, lead
from . import charts, palette
from .bars import segments
from .charts.model import Chart
from .charts.scripts import chart_scripts, chart_styles
from .data import embedded
from .findings import findings
from .marked import prose

HERE = Path(__file__).parent
STYLES = ("assets/page.css",)
SCRIPTS = ("assets/page.js",)
"""What is put into every page, in this order."""


def render_html(diagnosis: Diagnosis, *, next_command: str, recorded: Sequence[Path] = ()) -> str:
    """The whole report, ending in a newline; `recorded` is the run's directory, or the files of a trace."""
    report = prepare(diagnosis)
    command = wording.clean(shlex.join(diagnosis.evidence.job.command))
    return page(
        "report.html.j2",
        charts.build(diagnosis, recorded),
        title=f"perfdoctor: {command}",
        command=command,
        report=report,
        doubts=doubts(diagnosis),
        lead=lead(diagnosis),
        step_bar=segments(report.anatomy),
        job_bar=segments(report.job_anatomy),
        findings=findings(diagnosis, report),
        next_command=wording.clean(next_command),
    )


def page(template: str, figures: Mapping[str, Chart], **views: object) -> str:
    """A page of a template that extends `base.html.j2`; `views` are what it draws, in words."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["prose"] = prose
    return environment.get_template(template).render(
        figures=figures,
        data=embedded({"charts": {name: chart.data for name, chart in figures.items()}}),
        light=palette.declarations(palette.LIGHT),
        dark=palette.declarations(palette.DARK),
        styles=[*((HERE / name).read_text(encoding="utf-8") for name in STYLES), *chart_styles(figures)],
        scripts=[*((HERE / name).read_text(encoding="utf-8") for name in SCRIPTS), *chart_scripts(figures)],
        version=VERSION,
        **views,
    )
