"""Which checks run and which findings count: `select`, `extend-select` and `ignore`, as ruff decides it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .decoding import NO_KEY, setting
from .suppressions import code_of


@dataclass(frozen=True, slots=True)
class Selection:
    """One source's choice of checks by code, prefix of a code, name, or full finding id; see `is_selected`."""

    select: tuple[str, ...] | None = None
    """None leaves the earlier sources' choice as it is, except for what the other two name."""
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    source: Path | None = setting(None, key=NO_KEY)
    """None for the command line and the defaults."""

    @property
    def entries(self) -> tuple[str, ...]:
        """All that is named."""
        return (*(self.select or ()), *self.extend_select, *self.ignore)

    def decide(self, code_or_id: str, so_far: bool) -> bool:
        """Whether it is selected after this source, when it was `so_far` before."""
        chosen = _longest_match((*(self.select or ()), *self.extend_select), code_or_id)
        ignored = _longest_match(self.ignore, code_or_id)
        if chosen == ignored == 0:
            return so_far and self.select is None
        return chosen > ignored

    def with_codes(self, codes: Mapping[str, str]) -> Selection:
        """The same, with codes in place of the checks' names."""
        return dataclasses.replace(
            self,
            select=None if self.select is None else tuple(with_code(entry, codes) for entry in self.select),
            extend_select=tuple(with_code(entry, codes) for entry in self.extend_select),
            ignore=tuple(with_code(entry, codes) for entry in self.ignore),
        )


def is_chosen(code_or_id: str, selections: Sequence[Selection]) -> bool:
    """Whether a check (by code) or a finding (by full id) is wanted by these, the later over the earlier.

    Within one source the longest matching prefix wins, and `ignore` wins a tie; a full id matches only itself.
    A check is wanted when any of its findings can be.
    """
    asked = {code_or_id}
    if code_or_id == code_of(code_or_id):
        asked |= {entry for selection in selections for entry in selection.entries if code_of(entry) == code_or_id}
    return any(_decide(entry, selections) for entry in asked)


def split(options: Sequence[str]) -> tuple[str, ...]:
    """Codes that may be joined by commas."""
    return tuple(code for option in options for part in option.split(",") if (code := part.strip()))


def with_code(code_or_id: str, codes: Mapping[str, str]) -> str:
    """`PD03.too-few-workers` of `etl.too-few-workers`."""
    name, dot, finding = code_or_id.partition(".")
    return f"{codes.get(name, name)}{dot}{finding}"


def _decide(code_or_id: str, selections: Iterable[Selection]) -> bool:
    selected = False
    for selection in selections:
        selected = selection.decide(code_or_id, selected)
    return selected


def _longest_match(entries: Iterable[str], code_or_id: str) -> int:
    """Length of the longest entry that names it; 0 for none."""
    code = code_of(code_or_id)
    return max((len(e) for e in entries if e == code_or_id or ("." not in e and code.startswith(e))), default=0)
