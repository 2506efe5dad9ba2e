"""The report as GitHub-flavoured Markdown: tables, a mermaid chart, and code in fences."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..diagnosis.diagnoses import Diagnosis
from ..version import VERSION
from . import wording
from .content import FindingText, prepare

if TYPE_CHECKING:
    import jinja2

TEMPLATES = Path(__file__).parent / "templates"
TEMPLATE = "report.md.j2"
FINDING = "finding.md.j2"

_EMPHASIS = re.compile(r"\*|(?<!\w)_+|_+(?!\w)|~~")
_LINE_BREAKS = re.compile(r"\s*\n\s*")


def render_markdown(diagnosis: Diagnosis, *, next_command: str) -> str:
    """The whole report, ending in a newline."""
    template = _environment().get_template(TEMPLATE)
    return _tidy(
        template.render(
            report=prepare(diagnosis),
            command=wording.clean(shlex.join(diagnosis.evidence.job.command)),
            next_command=wording.clean(next_command),
            version=VERSION,
        )
    )


def render_finding(finding: FindingText) -> str:
    """One finding with its fix, without what the report folds away: for places that show no folded text."""
    return _tidy(_environment().get_template(FINDING).render(finding=finding))


def _tidy(text: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"


@cache
def _environment() -> jinja2.Environment:
    import jinja2  # only this renderer needs it, and it is slow to import

    # A Markdown document: autoescaping would turn every quote in a code block into an HTML entity. Everything
    # that comes from outside goes through one of the filters instead.
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["number"] = wording.plain_number
    for function in (prose, cell, code, code_cell, fenced, chart_label):
        environment.filters[function.__name__] = function
    return environment


def prose(text: str) -> str:
    """Text in a paragraph: its code spans stay, `<module>` and `__init__` print as they are."""
    text, pieces, end = _LINE_BREAKS.sub(" ", text), [], 0
    for span in wording.CODE_SPAN.finditer(text):
        pieces += [_escaped(text[end : span.start()]), span.group(0)]
        end = span.end()
    return "".join([*pieces, _escaped(text[end:])])


def cell(text: str) -> str:
    """Text in a table cell."""
    return prose(text).replace("|", "\\|")


def code(text: str) -> str:
    """A code span, longer backticks around backticks; "" for no text."""
    if not text:
        return ""
    text = _LINE_BREAKS.sub(" ", text)
    ticks = "`" * (_longest_run(text) + 1)
    space = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def code_cell(text: str) -> str:
    """A code span in a table cell, where even code needs its bars escaped."""
    return code(text).replace("|", "\\|")


def fenced(text: str, language: str = "") -> str:
    """A code block whose fence is longer than any run of backticks in it."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def chart_label(text: str) -> str:
    """A label in a mermaid chart, which knows no escape for a quote."""
    return text.replace('"', "'")


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\\\").replace("`", "\\`")
    # A name that a recording holds makes no tag, and no link or picture: recordings are passed around.
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("](", "]\\(")
    return _EMPHASIS.sub(lambda match: "".join(f"\\{c}" for c in match.group(0)), text)


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall(r"`+", text)), default=0)
