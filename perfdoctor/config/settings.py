"""All settings: those of `perfdoctor.toml` or `[tool.perfdoctor]`, with command-line options laid over them."""

from __future__ import annotations

import dataclasses
import os.path
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import PerfdoctorError, did_you_mean
from ..storage.urls import is_url
from .choices import FailOn
from .decoding import COUNT, NO_KEY, POSITIVE, Place, laid_over, setting
from .gate import GateSettings
from .rules import Budget, Rule
from .suppressions import Suppression, code_of


@dataclass(frozen=True, slots=True)
class Selection:
    """One source's choice of checks by code, prefix of a code, name, or full finding id, as ruff decides it; see
    `is_selected`."""

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


@dataclass(frozen=True, slots=True)
class Config:
    """All settings; the defaults are those of a user who wrote none."""

    selections: tuple[Selection, ...] = setting((Selection(select=("PD",)),), key=NO_KEY)
    """In the order in which they overrule each other: the configuration's, then the command line's."""
    fail_on: FailOn = "error"
    steps: int | None = setting(None, COUNT)
    """Steady steps to observe; None leaves it to how soon the step is settled."""
    seconds: float | None = setting(None, POSITIVE)
    """Steady training to observe."""
    patience_s: float = setting(300.0, POSITIVE, "patience")
    """How long to wait for the first step, and later for any progress."""
    runs: Path = setting(Path(".perfdoctor/runs"), key=NO_KEY)
    """Directory for recordings. `load` makes it absolute: from the directory of the file that it found, else
    from where it started."""
    storage: str = setting("", key="runs")
    """The URL to which recordings are uploaded; "" where they stay in `runs`."""
    upload_every_s: float = setting(30.0, POSITIVE, "upload-every")
    """How long a recording grows until it is uploaded again: what a machine that dies takes with it. Each time is a
    write or two for each process, which object stores put on the bill."""
    rules: tuple[Rule, ...] = setting((), key=NO_KEY)
    suppressions: tuple[Suppression, ...] = setting((), key=NO_KEY)
    gate: GateSettings = setting(GateSettings(), key=NO_KEY)
    budgets: tuple[Budget, ...] = setting((), key=NO_KEY)
    source: Path | None = setting(None, key=NO_KEY)
    """The file; None without one."""

    def rule(self, code: str) -> Rule:
        """The table of a check; an empty one when there is none."""
        return next((rule for rule in self.rules if rule.code == code), Rule(code))

    def merged(
        self,
        *,
        select: Sequence[str] | None = None,
        extend_select: Sequence[str] = (),
        ignore: Sequence[str] = (),
        fail_on: FailOn | None = None,
        steps: int | None = None,
        seconds: float | None = None,
        patience: float | None = None,
        runs: str | Path | None = None,
    ) -> Config:
        """With command-line options over it; None and () leave a setting. Codes may be joined by commas.

        As in ruff, `select` starts afresh (the file's `ignore` no longer counts), the other two add.
        Raises PerfdoctorError for a value out of range.
        """
        chosen = Selection(split(select) if select else None, split(extend_select), split(ignore))
        given = {"fail-on": fail_on, "steps": steps, "seconds": seconds, "patience": patience}
        return dataclasses.replace(
            laid_over(self, given),
            selections=self.selections if chosen == Selection() else (*self.selections, chosen),
            **({} if runs is None else place_of_runs(str(runs))),
        )

    def with_codes(self, codes: Mapping[str, str]) -> Config:
        """With the code of each check in place of its names, which are the keys of `codes`."""
        return dataclasses.replace(
            self,
            selections=tuple(selection.with_codes(codes) for selection in self.selections),
            rules=tuple(
                dataclasses.replace(rule, code=with_code(rule.code, codes), key=rule.key or rule.code)
                for rule in self.rules
            ),
            suppressions=tuple(
                dataclasses.replace(suppression, code=with_code(suppression.code, codes))
                for suppression in self.suppressions
            ),
            budgets=tuple(dataclasses.replace(budget, name=with_code(budget.name, codes)) for budget in self.budgets),
        )


def place_of_runs(where: str, base: Path = Path()) -> dict[str, Any]:
    """The fields that a directory (relative to `base`) or a URL sets."""
    if is_url(where):
        return {"storage": where, "runs": base / Config().runs}
    return {"storage": "", "runs": base / os.path.expanduser(where)}  # noqa: PTH111


def is_selected(code_or_id: str, config: Config) -> bool:
    """Whether a check (by code) or a finding (by full id) is wanted. One whose level is "off" never is.

    The later selection overrules the earlier. Within one the longest matching prefix wins, and `ignore` wins a tie; a
    full id matches only itself. A check is wanted when any of its findings can be.
    """
    if config.rule(code_of(code_or_id)).level == "off":
        return False
    asked = {code_or_id}
    if code_or_id == code_of(code_or_id):
        asked |= {
            entry for selection in config.selections for entry in selection.entries if code_of(entry) == code_or_id
        }
    return any(_decide(entry, config.selections) for entry in asked)


def _decide(code_or_id: str, selections: Iterable[Selection]) -> bool:
    selected = False
    for selection in selections:
        selected = selection.decide(code_or_id, selected)
    return selected


def _longest_match(entries: Iterable[str], code_or_id: str) -> int:
    """Length of the longest entry that names it; 0 for none."""
    code = code_of(code_or_id)
    return max((len(e) for e in entries if e == code_or_id or ("." not in e and code.startswith(e))), default=0)


def split(options: Sequence[str]) -> tuple[str, ...]:
    """Codes that may be joined by commas."""
    return tuple(code for option in options for part in option.split(",") if (code := part.strip()))


def with_code(code_or_id: str, codes: Mapping[str, str]) -> str:
    """`PD03.too-few-workers` of `etl.too-few-workers`."""
    name, dot, finding = code_or_id.partition(".")
    return f"{codes.get(name, name)}{dot}{finding}"


def require_known_codes(config: Config, known: Collection[str]) -> None:
    """Raises PerfdoctorError for a code in the settings that no check has.

    `known` are whole codes; select and ignore may also name the start of one.
    """
    for place, code_or_id, is_prefix in _named_codes(config):
        whole = code_of(code_or_id) in known and not code_or_id.endswith(".")
        if whole or (is_prefix and code_or_id and "." not in code_or_id and _starts_any(code_or_id, known)):
            continue
        raise PerfdoctorError(
            f"{place} names the check `{code_or_id}`, which does not exist"
            f"{did_you_mean(code_of(code_or_id), sorted(known))}",
            slug="config-unknown-code",
            advice=f"The checks are {', '.join(sorted(known))}; `perfdoctor explain --all` says what they look at.",
        )


def _starts_any(start: str, known: Collection[str]) -> bool:
    return any(code.startswith(start) for code in known)


def _named_codes(config: Config) -> Iterator[tuple[Place, str, bool]]:
    """Every code or finding that the settings name, where, and whether the start of a code will do."""
    for selection in config.selections:
        for key in ("select", "extend-select", "ignore"):
            place = Place(selection.source, key)
            yield from ((place, entry, True) for entry in getattr(selection, key.replace("-", "_")) or ())
    file = Place(config.source)
    yield from ((file.at("rules"), rule.code, False) for rule in config.rules)
    for number, suppression in enumerate(config.suppressions):
        yield file.at(f"suppress[{number + 1}].code"), suppression.code, False
