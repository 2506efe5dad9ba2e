"""The lines of the user's files that let a container grow, or name it, by its source alone."""

import io
import re

_LARGEST_FILE = 1 << 20
"""Bytes: larger ones were not written by hand."""
_MOST_USES = 20
_ADDS = (
    r"(?:\s*\[[^\]\n]*\])*\s*(?:\.(?:append|appendleft|extend|extendleft|add|insert|update|setdefault)\(|(?:\+|\|)=)"
)
_SETS = r"(?:\s*\[[^\]\n]*\])+\s*=(?!=)"
_REBINDS = r"\s*(?:[-+*]?=(?!=)|:\s*[\w.]+\s*=)"
_CALLED = re.compile(r"(\w+)\s*\(")
_FUNCTION = re.compile(r"\s*(?:async\s+)?def\s+(\w+)")


class GrowingLines:
    """Places in the user's files, as numbers of the recording."""

    def __init__(self, sites) -> None:
        self.sites = sites
        self.files: "dict[str, list[str]]" = {}

    def grows(self, held) -> int:
        """Where something is added to a container; -1 where no line says so."""
        word = _pattern(held.word)
        return self._first(held, re.compile(f"{word}(?:{_ADDS}|{_SETS})"))

    def sets(self, held) -> int:
        """Where a variable or an attribute gets a new value; -1 where no line says so."""
        return self._first(held, re.compile(_pattern(held.word) + _REBINDS))

    def uses(self, held) -> "tuple[list[int], list[str]]":
        """Lines of the same files that name it, and the functions that these call: it may go by another name there."""
        word = re.compile(_pattern(held.word))
        found, called = [], {}
        for file in held.files:
            for number, line in enumerate(self._lines(file), 1):
                if word.search(line) and len(found) < _MOST_USES:
                    found.append(self._place(file, number))
                    called.update(dict.fromkeys(_CALLED.findall(line)))
        return found, list(called)

    def _first(self, held, statement) -> int:
        """The last of several: a variable is set before its loop, and again in it. A key of the path decides first."""
        key = re.findall(r'\["(\w+)"\]', held.path)[-1:]
        best = None
        for file in held.files:
            for number, line in enumerate(self._lines(file), 1):
                if statement.search(line):
                    named = not key or key[0] in line
                    if best is None or (named, best[1]) >= (best[0], file):
                        best = (named, file, number)
            if best is not None:
                return self._place(*best[1:])
        return -1

    def _place(self, file: str, number: int) -> int:
        lines = self._lines(file)
        indent, function = _indent(lines[number - 1]), "<module>"
        for line in reversed(lines[: number - 1]):
            if line.strip() and _indent(line) < indent:
                indent, header = _indent(line), _FUNCTION.match(line)
                if header is not None:
                    function = header[1]
                    break
        return self.sites.number((file, number, function, None))

    def _lines(self, file: str) -> "list[str]":
        known = self.files.get(file)
        if known is None:
            try:
                with io.open(file, encoding="utf-8", errors="replace") as source:
                    known = [line.split("#", 1)[0] for line in source.read(_LARGEST_FILE).splitlines()]
            except OSError:
                known = []
            self.files[file] = known
        return known


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _pattern(word: str) -> str:
    return r"\." + re.escape(word[1:]) + r"\b" if word.startswith(".") else r"(?<![\w.])" + re.escape(word) + r"\b"
