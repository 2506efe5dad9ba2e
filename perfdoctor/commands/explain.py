"""`perfdoctor explain`: a check's documentation, from its docstring."""

from __future__ import annotations

from typing import Literal

from ..diagnosis.integrity import PAGES
from ..diagnosis.registry import Registered, discover
from ..errors import PerfdoctorError, nearest
from ..injected._perfdoctor_probe.remedies import catalogue
from ..report.explain import explain_markdown, explain_text, trust_markdown, trust_text


def render(code: str | None, every: bool, output_format: Literal["text", "markdown"]) -> str:
    """The pages asked for, as text or markdown. Raises PerfdoctorError for an unknown check."""
    if code is not None and code.upper() in PAGES:
        return (trust_markdown if output_format == "markdown" else trust_text)(code.upper()).rstrip()
    checks = discover()
    if every:
        chosen = list(checks)
    elif code is None:
        return "\n".join(
            [f"{c.check.code}  {c.check.name:<18} {c.check.title}" for c in checks]
            + [f"{code}  {page.title}" for code, page in PAGES.items()]
            + ["", "perfdoctor explain CODE   says more about one of them"]
        )
    else:
        chosen = [_find(code, checks)]
    page = explain_markdown if output_format == "markdown" else explain_text
    return "\n\n".join(page(registered.doc, registered.check).rstrip() for registered in chosen)


def remedies() -> str:
    """A line for each remedy that can be applied, with its number where it takes one."""
    rows = [
        "Fixes that `check --trial` tries on the running job and `run --apply` puts in place; a number is an example.",
        "",
    ]
    for entry in catalogue.ENTRIES:
        if entry.keep:
            name = entry.name if entry.argument is None else f"{entry.name}={entry.argument}"
            rows.append(f"{name:<24} {catalogue.described(entry.name)}")
            rows += [f"{'':<24} {line}" for line in _notes(entry)]
    return "\n".join([*rows, "", "perfdoctor run --apply NAME,NAME -- COMMAND   runs a job with them"])


def _notes(entry: catalogue.Entry) -> list[str]:
    """What there is to know before one is tried; nothing about one that only moves time and memory."""
    notes = [entry.caution] if entry.caution else []
    if entry.launches:
        notes.append("needs a new launch")
    elif not entry.reversible:
        notes.append("a trial cannot take it back wholly")
    return [f"({'; '.join(notes)})"] if notes else []


def _find(code: str, checks: tuple[Registered, ...]) -> Registered:
    wanted = code.partition(".")[0].lower()
    for registered in checks:
        if wanted in map(str.lower, registered.check.names):
            return registered
    close = nearest(code, [*PAGES, *(name for c in checks for name in c.check.names)])
    raise PerfdoctorError(
        f"unknown check {code}",
        slug="unknown-check",
        advice=f"did you mean {close}?" if close else "perfdoctor explain lists them all",
    )
