"""Finds and reads `perfdoctor.toml` or the section `[tool.perfdoctor]`.

The nearest file from the working directory upwards is read, whole; files are never merged.
"""

from __future__ import annotations

import dataclasses
import importlib
import os.path
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from ..errors import PerfdoctorError
from .decoding import TABLE, Place, decode, keys, reject_unknown
from .gate import GateSettings
from .rules import read_budgets, read_rules
from .settings import Config, Selection, place_of_runs
from .suppressions import read_suppressions

FILE = "perfdoctor.toml"
PYPROJECT = "pyproject.toml"
TOP_KEYS = (*keys(Selection), *keys(Config), "rules", "suppress", "gate", "assert")


def load(start: Path, explicit: Path | None = None) -> Config:
    """The configuration for a working directory, or the `explicit` file's (relative to `start`).

    Codes are not checked here, because that needs the checks: see `require_known_codes`. Raises PerfdoctorError.
    """
    start = start.absolute()
    if explicit is None:
        for path in (directory / name for directory in (start, *start.parents) for name in (FILE, PYPROJECT)):
            # Not Path.is_file(): it raises in a parent directory that may not be searched.
            found = _from_file(path, path.parent) if os.path.isfile(path) else None  # noqa: PTH113
            if found is not None:
                return found
        return Config(runs=start / Config().runs)
    path = start / explicit
    if not os.path.isfile(path):  # noqa: PTH113
        raise PerfdoctorError(
            f"no configuration file at {path}",
            slug="config-not-found",
            advice=f"Give `--config` the path of a {FILE} or {PYPROJECT}, or leave it out.",
        )
    config = _from_file(path, start)
    if config is None:
        raise PerfdoctorError(
            f"{path} has no section [tool.perfdoctor]",
            slug="config-no-section",
            advice="Add the section, or leave `--config` out to use the defaults.",
        )
    return config


def _from_file(path: Path, base: Path) -> Config | None:
    """None for a pyproject.toml without `[tool.perfdoctor]`."""
    raw = _read(path)
    if path.name != PYPROJECT:
        return build(_parse(raw, path), Place(path), base)
    if b"perfdoctor" not in raw:  # somebody else's file, whatever is wrong with it
        return None
    tool = _parse(raw, path).get("tool")
    section = tool.get("perfdoctor") if isinstance(tool, dict) else None
    return None if section is None else build(section, Place(path, "tool.perfdoctor"), base)


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


def build(document: object, place: Place, base: Path) -> Config:
    """From what a file holds; relative paths start at `base`. Raises PerfdoctorError."""
    table = TABLE.decode(document, place)
    reject_unknown(table, TOP_KEYS, place)

    def of(section: type) -> Mapping[str, object]:
        return {key: table[key] for key in keys(section) if key in table}

    selection, config = decode(Selection, of(Selection), place), decode(Config, of(Config), place)
    wanted = Config().selections[0].select if selection.select is None else selection.select
    return dataclasses.replace(
        config,
        selections=(dataclasses.replace(selection, select=wanted, source=place.source),),
        **place_of_runs(config.storage or str(config.runs), base),
        suppressions=read_suppressions(table.get("suppress", []), place.at("suppress")),
        gate=decode(GateSettings, table.get("gate", {}), place.at("gate")),
        rules=read_rules(table.get("rules", {}), place.at("rules")),
        budgets=read_budgets(table.get("assert", {}), place.at("assert")),
        source=place.source,
    )
