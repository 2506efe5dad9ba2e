"""A check's documentation, made from its module docstring: text for the terminal, Markdown for the docs."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import dataclass, replace
from typing import Any

from ..diagnosis.findings import Check
from ..diagnosis.thresholds import thresholds
from ..diagnosis.trust import PAGES

SECTIONS = (
    "What it looks at",
    "Why it costs time",
    "Example",
    "How to fix",
    "When it stays silent",
    "Limits",
    "References",
)
"""The sections of every check's docstring, in this order; each title is underlined with dashes."""

THRESHOLDS = "Thresholds"
"""The section that is made from the check's limits."""
TEXT_WIDTH = 80

_UNDERLINE = re.compile(r"-{3,}")
_LIST_ITEM = re.compile(r"(?:[-*+]|\d+[.)])\s")
_FENCE = re.compile(r"(`{3,}|~{3,})")


@dataclass(frozen=True, slots=True)
class Section:
    """One section of a docstring."""

    title: str
    body: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """A docstring taken apart."""

    summary: str
    """What stands above the first section."""
    sections: tuple[Section, ...]


def parse(docstring: str) -> Explanation:
    """The summary and the sections, whichever there are."""
    lines = inspect.cleandoc(docstring).splitlines()
    fenced = _fenced_lines(lines)
    starts = [
        i
        for i in range(len(lines) - 1)
        if lines[i].strip() and not fenced[i] and _UNDERLINE.fullmatch(lines[i + 1].strip())
    ]
    ends = [*starts[1:], len(lines)]
    sections = tuple(
        Section(lines[start].strip(), _block(lines[start + 2 : end])) for start, end in zip(starts, ends, strict=False)
    )
    return Explanation(_block(lines[: starts[0]] if starts else lines), sections)


def missing_sections(docstring: str) -> tuple[str, ...]:
    """The fixed sections that are absent, empty or out of order."""
    wanted = [s.title for s in parse(docstring).sections if s.title in SECTIONS and s.body]
    in_order = iter(wanted)
    return tuple(title for title in SECTIONS if title not in in_order)


def explained(docstring: str, check: Check[Any]) -> Explanation:
    """The docstring's sections, and the thresholds that the configuration can change."""
    explanation = parse(docstring)
    items = [f"- `{t.name} = {_toml(t.value)}`{f': {t.reason}' if t.reason else ''}" for t in thresholds(check)]
    if not items:
        return explanation
    lead = f"To be changed under `[rules.{check.code}]` in perfdoctor.toml."
    return replace(explanation, sections=(*explanation.sections, Section(THRESHOLDS, "\n".join([lead, "", *items]))))


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


def explain_text(docstring: str, check: Check[Any]) -> str:
    """The page for a terminal: no line of prose over `TEXT_WIDTH` columns, code as it is."""
    explanation = explained(docstring, check)
    blocks = [_heading(check)]
    if explanation.summary:
        blocks.append(_wrapped(explanation.summary))
    for section in explanation.sections:
        blocks.append(f"{section.title}\n{textwrap.indent(_wrapped(section.body, 2), '  ')}")
    return "\n\n".join(blocks) + "\n"


def explain_markdown(docstring: str, check: Check[Any]) -> str:
    """The page for the docs: indented code becomes a fence, everything else is Markdown already."""
    explanation = explained(docstring, check)
    blocks = [f"# {_heading(check)}"]
    if explanation.summary:
        blocks.append(_as_markdown(explanation.summary))
    for section in explanation.sections:
        blocks.append(f"## {section.title}\n\n{_as_markdown(section.body)}")
    return "\n\n".join(blocks) + "\n"


def trust_text(code: str) -> str:
    """What a code from PD90 on means, for a terminal."""
    page = PAGES[code]
    return f"{code}: {page.title}\n\n{_wrapped(page.meaning)}\n\n{_wrapped(page.advice)}\n"


def trust_markdown(code: str) -> str:
    """The same as a section of the docs."""
    page = PAGES[code]
    return f"## {code}: {page.title}\n\n{page.meaning}\n\n{page.advice}\n"


def _heading(check: Check[Any]) -> str:
    return f"{check.code} {check.name}: {check.title}"


def _block(lines: list[str]) -> str:
    return "\n".join(lines).strip("\n").rstrip()


def _fenced_lines(lines: list[str]) -> list[bool]:
    """Which lines are a fence or inside one."""
    flags, fence = [], ""
    for line in lines:
        match = _FENCE.match(line.strip())
        flags.append(bool(fence or match))
        if match and not fence:
            fence = match.group(1)
        elif fence and line.strip().startswith(fence):
            fence = ""
    return flags


def _paragraphs(body: str) -> list[tuple[bool, str]]:
    """The body in blocks: whether it is code (fenced, or indented by four outside a list), and its text."""
    lines = body.splitlines()
    fenced = _fenced_lines(lines)
    blocks: list[tuple[bool, list[str]]] = []
    in_list = False
    gap = True
    for line, in_fence in zip(lines, fenced, strict=True):
        if not in_fence and not line.strip():
            gap = True
            if blocks and blocks[-1][0]:
                blocks[-1][1].append("")
            continue
        indented = line.startswith("    ") and not in_list
        code = in_fence or (indented and (gap or blocks[-1][0]))
        if not code and not line.startswith(" "):
            in_list = bool(_LIST_ITEM.match(line))
        new = not blocks or blocks[-1][0] != code or (gap and not code) or (not code and _starts_item(line))
        if new:
            blocks.append((code, []))
        blocks[-1][1].append(line)
        gap = False
    return [(code, _block(block)) for code, block in blocks]


def _starts_item(line: str) -> bool:
    return bool(_LIST_ITEM.match(line.strip()))


def _wrapped(body: str, indent: int = 0) -> str:
    """Prose re-flowed to the width of a terminal; list items keep their hanging indent, code its lines."""
    texts: list[str] = []
    for code, block in _paragraphs(body):
        if code:
            texts.append("\n" + textwrap.indent(_without_fence(block), "    ") + "\n")
            continue
        first = block[: len(block) - len(block.lstrip())]
        item = _LIST_ITEM.match(block.lstrip())
        hanging = first + (" " * len(item.group(0)) if item else "")
        text = textwrap.fill(
            " ".join(block.split()),
            TEXT_WIDTH - indent,
            initial_indent=first,
            subsequent_indent=hanging,
            break_long_words=False,
            break_on_hyphens=False,
        )
        texts.append(text if item else "\n" + text + "\n")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(texts)).strip("\n")


def _as_markdown(body: str) -> str:
    texts: list[str] = []
    for code, block in _paragraphs(body):
        if not code:
            texts.append(block if _starts_item(block) else f"\n{block}\n")
        elif _FENCE.match(block.strip()):
            texts.append(f"\n{block}\n")
        else:
            content = _without_fence(block)
            language = "bash" if content.startswith(("$ ", "export ")) else "python"
            texts.append(f"\n```{language}\n{content}\n```\n")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(texts)).strip("\n")


def _without_fence(block: str) -> str:
    lines = block.splitlines()
    if _FENCE.match(lines[0].strip()):
        lines = lines[1:-1] if len(lines) > 1 and _FENCE.match(lines[-1].strip()) else lines[1:]
    return textwrap.dedent("\n".join(lines)).strip("\n")
