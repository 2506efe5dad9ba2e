"""What the user asked for: `perfdoctor.toml` or `[tool.perfdoctor]`, with command-line options laid over it.

The nearest file from the working directory upwards is read, whole; files are never merged. Every mistake is an
error that names the file and the key: a misspelled threshold that is passed over looks like one that is met.
"""

from __future__ import annotations

import dataclasses
import importlib
import os.path
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args

from ..errors import PerfdoctorError
from .gate import Budget, GateSettings, read_budgets, read_gate
from .suppressions import Suppression, code_of
from .table import LimitValue, Table, nearest

if TYPE_CHECKING:
    # Types only: `diagnosis` imports this module, and the command line must start fast.
    from ..diagnosis.findings import Check

FILE = "perfdoctor.toml"
PYPROJECT = "pyproject.toml"
TOP_KEYS = (
    *("select", "extend-select", "ignore", "fail-on", "steps", "seconds", "patience", "runs"),
    *("rules", "suppress", "gate", "assert"),
)
SUPPRESS_KEYS = ("code", "where", "reason", "expires")

FailOn = Literal["error", "warning", "never"]
Level = Literal["error", "warning", "note", "off"]

L = TypeVar("L")


@dataclass(frozen=True, slots=True)
class Selection:
    """One source's choice of checks by code, prefix of a code, or full finding id; see `is_selected`."""

    select: tuple[str, ...] | None = None
    """None leaves the earlier sources' choice as it is, except for what the other two name."""
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    source: Path | None = None
    """None for the command line and the defaults."""

    def decide(self, code_or_id: str, so_far: bool) -> bool:
        """Whether it is selected after this source, when it was `so_far` before."""
        chosen = _longest_match((*(self.select or ()), *self.extend_select), code_or_id)
        ignored = _longest_match(self.ignore, code_or_id)
        if chosen == ignored == 0:
            return so_far and self.select is None
        return chosen > ignored


@dataclass(frozen=True, slots=True)
class Rule:
    """The table of one check, `[rules.PD03]`."""

    code: str
    level: Level | None = None
    """The severity of all its findings, or "off"; None keeps the measured one."""
    limits: Mapping[str, LimitValue] = dataclasses.field(default_factory=dict)
    """Thresholds by kebab name, for `apply_limits`."""


@dataclass(frozen=True, slots=True)
class Config:
    """All settings; the defaults are those of a user who wrote none."""

    selections: tuple[Selection, ...] = (Selection(select=("PD",)),)
    """In the order in which they overrule each other: the configuration's, then the command line's."""
    fail_on: FailOn = "error"
    steps: int = 200
    """Steady steps that are enough."""
    seconds: float = 60.0
    """Steady training that is enough."""
    patience_s: float = 300.0
    """How long to wait for the first step, and later for any progress."""
    runs: Path = Path(".perfdoctor/runs")
    """Directory for recordings. `load` makes it absolute: from the directory of the file that it found, else
    from where it started."""
    rules: tuple[Rule, ...] = ()
    suppressions: tuple[Suppression, ...] = ()
    gate: GateSettings = dataclasses.field(default_factory=GateSettings)
    budgets: tuple[Budget, ...] = ()
    source: Path | None = None
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
        fail_on: str | None = None,
        steps: int | None = None,
        seconds: float | None = None,
        patience: float | None = None,
        runs: Path | None = None,
    ) -> Config:
        """With command-line options over it; None and () leave a setting. Codes may be joined by commas.

        As in ruff, `select` starts afresh (the file's `ignore` no longer counts), the other two add.
        Raises PerfdoctorError for a value out of range.
        """
        given = {"fail-on": fail_on, "steps": steps, "seconds": seconds, "patience": patience}
        options = Table({key: value for key, value in given.items() if value is not None}, None, "--")
        chosen = Selection(_split(select) if select else None, _split(extend_select), _split(ignore))
        return dataclasses.replace(
            self,
            selections=self.selections if chosen == Selection() else (*self.selections, chosen),
            fail_on=_fail_on(options, self.fail_on),
            steps=options.whole("steps", self.steps),
            seconds=options.number("seconds", self.seconds),
            patience_s=options.number("patience", self.patience_s),
            runs=self.runs if runs is None else runs,
        )


def load(start: Path, explicit: Path | None = None) -> Config:
    """The configuration for a working directory, or the `explicit` file's (relative to `start`).

    Codes are not checked here, because that needs the checks: see `require_known_codes`. Raises PerfdoctorError.
    """
    start = start.absolute()
    if explicit is None:
        for directory in (start, *start.parents):
            config = _from_directory(directory)
            if config is not None:
                return config
        return Config(runs=start / Config().runs)
    path = start / explicit
    if not os.path.isfile(path):  # noqa: PTH113
        raise PerfdoctorError(
            f"no configuration file at {path}",
            slug="config-not-found",
            advice=f"Give `--config` the path of a {FILE} or {PYPROJECT}, or leave it out.",
        )
    table = _section(path) if path.name == PYPROJECT else Table(_parse(_read(path), path), path)
    if table is None:
        raise PerfdoctorError(
            f"{path} has no section [tool.perfdoctor]",
            slug="config-no-section",
            advice="Add the section, or leave `--config` out to use the defaults.",
        )
    return _build(table, base=start)


def is_selected(code_or_id: str, config: Config) -> bool:
    """Whether a check (by code) or a finding (by full id) is wanted, as ruff decides it.

    Within one source the longest matching prefix wins, and `ignore` wins a tie; a full id matches only itself.
    A check is wanted when any of its findings can be; one whose level is "off" never is.
    """
    code = code_of(code_or_id)
    if config.rule(code).level == "off":
        return False
    asked = {code_or_id}
    if code_or_id == code:
        asked |= {entry for s in config.selections for entry in _entries(s) if code_of(entry) == code}
    return any(_decide(entry, config.selections) for entry in asked)


def require_known_codes(config: Config, known: Collection[str]) -> None:
    """Raises PerfdoctorError for a code in the settings that no check has.

    `known` are whole codes; select and ignore may also name the start of one.
    """
    for selection in config.selections:
        for key in ("select", "extend-select", "ignore"):
            for entry in getattr(selection, key.replace("-", "_")) or ():
                is_prefix = "." not in entry and any(code.startswith(entry) for code in known)
                if not entry or not (is_prefix or _is_known(entry, known)):
                    raise _unknown_code(
                        Table({}, selection.source, "" if selection.source else "--"), key, entry, known
                    )
    file = Table({}, config.source)
    for rule in config.rules:
        if rule.code not in known:
            raise _unknown_code(file, "rules", rule.code, known)
    for number, suppression in enumerate(config.suppressions, 1):
        if not _is_known(suppression.code, known):
            raise _unknown_code(file, f"suppress[{number}].code", suppression.code, known)


def apply_limits(check: Check[L], overrides: Mapping[str, LimitValue], source: Path | None) -> L:
    """The check's thresholds with those of its `Rule` over them. Raises PerfdoctorError for a wrong name or type."""
    limits = cast("Any", check.limits)  # a frozen dataclass, which a type variable cannot say
    names = {field.name.replace("_", "-"): field.name for field in dataclasses.fields(limits)}
    table = Table(overrides, source, f"rules.{check.code}.")
    table.reject_unknown((*names, "level"))
    changes = {names[key]: table.like(key, getattr(limits, names[key])) for key in overrides}
    try:
        return cast("L", dataclasses.replace(limits, **changes))
    except ValueError as error:
        raise PerfdoctorError(
            f"`rules.{check.code}`{table.place}: {error}",
            slug="config-bad-threshold",
            advice=f"`perfdoctor explain {check.code}` says what each threshold means.",
        ) from error


# ---------------------------------------------------------------------------------------------------------
# Codes


def _decide(code_or_id: str, selections: Iterable[Selection]) -> bool:
    selected = False
    for selection in selections:
        selected = selection.decide(code_or_id, selected)
    return selected


def _longest_match(entries: Iterable[str], code_or_id: str) -> int:
    """Length of the longest entry that names it; 0 for none."""
    code = code_of(code_or_id)
    return max((len(e) for e in entries if e == code_or_id or ("." not in e and code.startswith(e))), default=0)


def _entries(selection: Selection) -> tuple[str, ...]:
    return (*(selection.select or ()), *selection.extend_select, *selection.ignore)


def _split(options: Sequence[str]) -> tuple[str, ...]:
    return tuple(code for option in options for part in option.split(",") if (code := part.strip()))


def _is_known(code_or_id: str, known: Collection[str]) -> bool:
    return code_of(code_or_id) in known and not code_or_id.endswith(".")


def _unknown_code(table: Table, key: str, entry: str, known: Collection[str]) -> PerfdoctorError:
    return PerfdoctorError(
        f"{table.named(key)} names the check `{entry}`, which does not exist{nearest(code_of(entry), sorted(known))}",
        slug="config-unknown-code",
        advice=f"The checks are {', '.join(sorted(known))}; `perfdoctor explain --all` says what they look at.",
    )


# ---------------------------------------------------------------------------------------------------------
# Files


def _from_directory(directory: Path) -> Config | None:
    path = directory / FILE
    # Not Path.is_file(): it raises in a parent directory that may not be searched.
    if os.path.isfile(path):  # noqa: PTH113
        return _build(Table(_parse(_read(path), path), path), base=directory)
    path = directory / PYPROJECT
    table = _section(path) if os.path.isfile(path) else None  # noqa: PTH113
    return None if table is None else _build(table, base=directory)


def _section(path: Path) -> Table | None:
    """`[tool.perfdoctor]`; None when the file does not have it."""
    raw = _read(path)
    if b"perfdoctor" not in raw:  # somebody else's file, whatever is wrong with it
        return None
    tool = _parse(raw, path).get("tool")
    if not isinstance(tool, dict) or "perfdoctor" not in tool:
        return None
    return Table(tool, path, "tool.").table("perfdoctor")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PerfdoctorError(
            f"{path} cannot be read: {error.strerror or error}",
            slug="config-unreadable",
            advice="Make it readable, or name another file with `--config`.",
        ) from error


def _parse(raw: bytes, path: Path) -> Mapping[str, object]:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise _syntax_error(path, line, column, "a byte that is not UTF-8") from error
    # Not an import statement: a type checker would look for both, and only one is ever installed.
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        document: dict[str, object] = toml.loads(text)
    except (ValueError, RecursionError) as error:  # not TOMLDecodeError alone: a number of 5,000 digits
        said, at_end = str(error), " (at end of document)"
        if at := re.search(r" \(at line (\d+), column (\d+)\)$", said):
            raise _syntax_error(path, int(at[1]), int(at[2]), said[: at.start()]) from error
        lines = text.split("\n") if said.endswith(at_end) else [""]
        raise _syntax_error(path, len(lines), len(lines[-1]) + 1, said.removesuffix(at_end)) from error
    return document


def _syntax_error(path: Path, line: int, column: int, what: str) -> PerfdoctorError:
    return PerfdoctorError(
        f"{path}, line {line}, column {column}: not valid TOML: {what}",
        slug="config-syntax",
        advice="Correct the line; https://toml.io shows the syntax. Text needs quotes, a list square brackets.",
    )


def _build(table: Table, base: Path) -> Config:
    table.reject_unknown(TOP_KEYS)
    default = Config()
    return Config(
        selections=(
            Selection(
                table.texts("select", default.selections[0].select or ()),
                table.texts("extend-select"),
                table.texts("ignore"),
                table.source,
            ),
        ),
        fail_on=_fail_on(table, default.fail_on),
        steps=table.whole("steps", default.steps),
        seconds=table.number("seconds", default.seconds),
        patience_s=table.number("patience", default.patience_s),
        runs=base / os.path.expanduser(table.text("runs", str(default.runs))),  # noqa: PTH111
        rules=tuple(_rule(table.table("rules").table(code), code) for code in table.table("rules").values),
        suppressions=tuple(_suppression(entry, n) for n, entry in enumerate(table.tables("suppress"), 1)),
        gate=read_gate(table.table("gate")),
        budgets=read_budgets(table.table("assert")),
        source=table.source,
    )


def _rule(table: Table, code: str) -> Rule:
    limits = {key: table.scalar(key) for key in table.values if key != "level"}
    return Rule(code, cast("Level | None", table.choice("level", get_args(Level))), limits)


def _fail_on(table: Table, default: FailOn) -> FailOn:
    return cast("FailOn", table.choice("fail-on", get_args(FailOn)) or default)


def _suppression(table: Table, number: int) -> Suppression:
    table.reject_unknown(SUPPRESS_KEYS)
    code = table.required_text("code", "Name what it silences: a check (PD04) or a finding (PD04.explicit-collect).")
    reason = table.required_text("reason", "Say why the finding is accepted; the report shows it.")
    where = table.text("where", "")
    if re.search(r":\d+$", where) or where.startswith("::") or where.endswith("::"):
        raise table.wrong("where", '"train.py" or "train.py::function" (line numbers move)')
    file = table.source.name if table.source else ""
    return Suppression(code, reason, where, table.day("expires"), f"suppress[{number}] in {file}")
