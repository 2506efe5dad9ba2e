"""The report for a terminal, as long as a screen: what costs time, what to do, and how far to trust it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rich.columns import Columns
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from ..diagnosis.diagnoses import Diagnosis
from ..diagnosis.findings import Confidence
from ..diagnosis.integrity import DOUBTS
from ..diagnosis.outcomes import OutcomeKind
from . import wording
from .anatomy import Slice, SliceText
from .console_full import full_report, trial_table
from .content import CheckText, Content, FindingText, prepare
from .terminal import (
    INDENT,
    MARK_STYLES,
    SEVERITY_STYLES,
    Bar,
    Line,
    Page,
    fitted,
    heading,
    marked,
    note,
    rows,
)
from .trials import TrialsText

MOST_LINES = 6
"""Of an ill. Three of them, the step and the rest then fit a screen of 50 lines."""
_MOST_OF_OPPORTUNITY = 5
"""A message of two lines: cut off after one, most of them lacked their point."""
_MOST_MESSAGE = 3
_MOST_FIX = 2
_LABEL = 6
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])")


def render_console(
    diagnosis: Diagnosis, *, next_command: str, verbose: bool = False, full_command: str = ""
) -> RenderableType:
    """The report; with `verbose` everything there is. `full_command` shows that later, from the recording."""
    content = prepare(diagnosis)
    blocks: list[RenderableType] = [Text(content.verdict, style="bold"), Text()]
    blocks += full_report(content) if verbose else _brief_report(content)
    commands = [("Next", next_command), ("All numbers", "" if verbose else full_command)]
    blocks += [
        Text.assemble(f"{name}: ", (wording.clean(command), "cyan"), overflow="fold")
        for name, command in commands
        if command
    ]
    return Page(Group(*blocks))


def _brief_report(content: Content) -> list[RenderableType]:
    blocks: list[RenderableType] = []
    if content.anatomy:
        blocks += [heading(f"Where the steady step goes ({content.step})"), *_anatomy(content.anatomy)]
    if content.job_anatomy:
        blocks += [heading(f"Where the job's time goes ({content.job})"), *_anatomy(content.job_anatomy)]
    blocks += [Text(text) for text in (content.whole_job, content.device, content.whereabouts, content.ranks) if text]
    if blocks:
        blocks.append(Text())
    for section in content.sections:
        blocks.append(heading(section.heading))
        for finding in section.findings:
            blocks += [_Finding(finding), Text()]
    if content.trials is not None:
        blocks += [heading("What trials of the fixes measured"), *_trials(content.trials), Text()]
    blocks += _checks(content.checks, content.traced)
    if content.suppressed:
        which = ", ".join(f"{item.finding.id} ({reason})" for item, reason in content.suppressed)
        number = wording.plural(len(content.suppressed), "finding")
        blocks.append(_marked("-", f"{number} suppressed by the configuration: {which}"))
    blocks += [
        note(mark, one) for mark, one in content.notes if one.name not in DOUBTS
    ]  # the verdict begins with those
    if content.alarms:
        blocks.append(rows(content.alarms))
    if content.trust_brief:
        blocks.append(Text(f"Trust: {content.trust_brief}."))
    if content.accuracy:
        blocks.append(Text(content.accuracy))
    return blocks


def _anatomy(anatomy: tuple[SliceText, ...]) -> list[RenderableType]:
    """The bar, and its parts beside each other."""
    pieces: tuple[Slice, ...] = tuple(row.piece for row in anatomy)
    label, time, share = (
        max(len(text) for text in texts)
        for texts in zip(*((row.piece.look.label, row.time, row.share) for row in anatomy), strict=True)
    )
    parts = [
        Text.assemble(
            (row.piece.look.glyph, row.piece.look.style),
            f" {row.piece.look.label:<{label}} {row.time:>{time}} {row.share:>{share}}",
            (f"  on the device {row.device}" if row.device else "", "dim"),
        )
        for row in anatomy
    ]
    return [Bar(pieces), Columns(parts, padding=(0, 3), column_first=True)]


# ---------------------------------------------------------------------------------------------------------
# Findings


class _Finding:
    """What it costs, the line that does it, what the fix gives, and the fix."""

    def __init__(self, text: FindingText) -> None:
        self.text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text, finding = self.text, self.text.finding
        number = f"{text.number}.".ljust(INDENT - 1) + " "
        width = options.max_width - len(number)
        style, offered = SEVERITY_STYLES[finding.severity], finding.is_opportunity
        body: list[tuple[str, list[Text]]] = []
        if text.place:
            where = Text.assemble(text.place, "  ", (text.line, "cyan"), no_wrap=True)
            where.truncate(width - _LABEL, overflow="ellipsis")
            body.append(("where", [where]))
        body.append(("gain", fitted(console, Text(text.gain), width - _LABEL, 1 if offered else 2)))
        if text.measured:
            body.append(("tried", fitted(console, Text(text.measured), width - _LABEL, 1)))
        used = sum(len(lines) for _, lines in body)
        limit = _MOST_OF_OPPORTUNITY if offered else MOST_LINES
        room = limit - used - 1
        ranks = f" ({text.ranks})" if text.ranks else ""
        doubt = "" if finding.confidence is Confidence.HIGH else f"{finding.confidence.value} confidence"
        kind = "" if offered else text.kind  # which the heading of opportunities says
        qualified = ", ".join(filter(None, (kind, doubt)))
        head = Text.assemble(
            (f"[{text.mark}]", style),
            " ",
            (finding.id, style),
            (f" ({qualified}): " if qualified else ": ", "dim"),
            (f"{text.message}{ranks}", "bold"),
        )
        message = fitted(console, head, width, max(1, min(room, _MOST_MESSAGE)))
        most = min(_MOST_FIX, max(1, limit - used - len(message)))
        body.append(("fix", _fix(console, text, width - _LABEL, most)))
        yield from _beside(Text(number), message)
        for label, lines in body:
            yield from _beside(Text.assemble(" " * len(number), (f"{label:<{_LABEL}}", "dim")), lines)


def _beside(label: Text, lines: Iterable[Text]) -> Iterator[Text]:
    """The lines in a column of their own."""
    for line in lines:
        yield label + line
        label = Text(" " * len(label))


def _fix(console: Console, text: FindingText, width: int, most: int) -> list[Text]:
    """The code where it is short, with the sentence where both fit; else the first sentence."""
    code = [line for line in text.code.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    sentence = _SENTENCE_END.split(text.fix, maxsplit=1)[0]
    if len(Text(sentence).wrap(console, width)) > most:
        sentence = sentence.partition("; ")[0]  # what follows is a condition or a reason; -v has it
    lines = fitted(console, Text(sentence), width, most)
    if not 0 < len(code) <= most or any(len(line) > width for line in code):
        return lines
    whole = len(lines) + len(code) <= most
    return [*(lines if whole else []), *(Text(line, style="cyan", no_wrap=True) for line in code)]


# ---------------------------------------------------------------------------------------------------------
# Trials and checks


def _trials(text: TrialsText) -> list[RenderableType]:
    measured = [row for row in text.rows if row.measured]
    blocks: list[RenderableType] = [trial_table(measured, whole=False)] if measured else []
    left_out: dict[tuple[str, str], list[str]] = {}
    for row in text.rows:
        if not row.measured:
            left_out.setdefault((row.mark, row.outcome), []).append(row.remedy)
    blocks += [
        _marked(mark, f"{wording.listing(names)}: {outcome}", cut=True) for (mark, outcome), names in left_out.items()
    ]
    blocks += [Text(sentence) for sentence in (text.together, text.warning) if sentence]
    if text.apply:
        blocks.append(Text.assemble("To run the job with what helped: ", (text.apply, "cyan"), overflow="fold"))
    return blocks


def _checks(checks: tuple[CheckText, ...], traced: bool) -> list[RenderableType]:
    """What found nothing, by outcome; a reason where there is no answer."""
    by_kind: dict[OutcomeKind, list[CheckText]] = {}
    for check in checks:
        by_kind.setdefault(check.result.outcome.kind, []).append(check)
    blocks: list[RenderableType] = []
    for kind in (OutcomeKind.CLEAR, OutcomeKind.NOT_APPLICABLE):
        if of_kind := by_kind.get(kind, []):
            names = ", ".join(check.result.name for check in of_kind)
            number = wording.plural(len(of_kind), "check")
            mark = of_kind[0].mark
            blocks.append(_marked(mark, f"{number} {of_kind[0].outcome}: {names}"))
    if traced and (unseen := by_kind.pop(OutcomeKind.CANNOT_TELL, [])):
        names = ", ".join(check.result.name for check in unseen)
        number = wording.plural(len(unseen), "check needs", "checks need")
        blocks.append(_marked(unseen[0].mark, f"{number} a run of the job (perfdoctor check train.py): {names}"))
    for kind in (OutcomeKind.CANNOT_TELL, OutcomeKind.CRASHED):
        by_reason: dict[str, list[CheckText]] = {}
        for check in by_kind.get(kind, []):
            by_reason.setdefault(check.text, []).append(check)
        blocks += [_of_one_reason(some, len(checks)) for some in by_reason.values()]
    return blocks


def _of_one_reason(some: list[CheckText], among: int) -> RenderableType:
    """Checks without an answer for the same reason, in one line."""
    first = some[0]
    if len(some) == 1:
        words = f"{first.result.name} {first.outcome}: {first.text}"
        return _marked(first.mark, words, cut=first.result.outcome.kind is OutcomeKind.CANNOT_TELL)
    which = "all" if len(some) == among else f"{len(some)} of"
    return Text(f"[{first.mark}] {which} {among} checks {first.outcome}: {first.text}", style=MARK_STYLES[first.mark])


def _marked(mark: str, words: str, *, cut: bool = False) -> RenderableType:
    return marked(mark, Line(words) if cut else Text(words))
