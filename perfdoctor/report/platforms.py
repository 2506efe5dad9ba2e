"""Formats of platforms and editors: GitHub annotations, GitLab's code quality, and one line per notice."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict

from .sheet import Notice, Sheet

GITHUB_MOST = 10
"""GitHub shows 10 annotations of a level per step and drops the rest without a word."""
_GITHUB_LEVELS = {"error": "error", "warning": "warning", "note": "notice"}
_GITLAB_SEVERITIES = {"error": "major", "warning": "minor", "note": "info"}


def render_github(sheet: Sheet) -> str:
    """Workflow commands: https://docs.github.com/actions/reference/workflow-commands-for-github-actions."""
    lines = []
    written: Counter[str] = Counter()
    total = Counter(notice.level for notice in sheet.open)
    for notice in sheet.open:
        level = notice.level
        written[level] += 1
        if written[level] < GITHUB_MOST or total[level] == GITHUB_MOST:
            lines.append(_annotation(notice, f"{notice.message} {notice.advice}"))
        elif written[level] == GITHUB_MOST:
            more = total[level] - GITHUB_MOST + 1
            lines.append(_annotation(notice, f"{more} more of this level: see the whole report."))
    lines.append(f"::notice title=perfdoctor {sheet.kind}::{_escaped(sheet.verdict)}")
    return "\n".join(lines) + "\n"


def _annotation(notice: Notice, text: str) -> str:
    place = notice.location
    values = {"file": place.file, "line": str(place.line), "title": notice.rule}
    properties = ",".join(f"{key}={_escaped_property(value)}" for key, value in values.items())
    return f"::{_GITHUB_LEVELS[notice.level]} {properties}::{_escaped(text.strip())}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escaped_property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


def render_gitlab(sheet: Sheet) -> str:
    """Code quality: https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format."""
    found = [
        {
            "description": f"{notice.message} {notice.advice}".strip(),
            "check_name": notice.rule,
            "fingerprint": notice.fingerprint,
            "severity": _GITLAB_SEVERITIES[notice.level],
            "location": {"path": notice.location.file, "lines": {"begin": notice.location.line}},
        }
        for notice in sheet.open
    ]
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def render_concise(sheet: Sheet) -> str:
    """`file:line: CODE level: message`, as compilers print it, and the verdict."""
    lines = [
        f"{notice.location.file}:{notice.location.line}: {notice.rule} {notice.level}: {notice.message}"
        for notice in sheet.open
    ]
    return "\n".join([*lines, sheet.verdict]) + "\n"


def render_jsonl(sheet: Sheet) -> str:
    """One JSON object per line: a summary, then cases, then notices, both with the fields of their classes, those of a
    place among them. Within version 1 fields are only added."""
    rows: list[dict[str, object]] = [
        {"type": "summary", "schema": "perfdoctor.lines/1", "kind": sheet.kind, "verdict": sheet.verdict}
    ]
    rows += [{"type": "case", **asdict(case)} for case in sheet.cases]
    for notice in sheet.notices:
        row: dict[str, object] = {"type": "notice"}
        for name, value in asdict(notice).items():
            row |= value if name == "location" else {name: value}
        rows.append(row)
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
