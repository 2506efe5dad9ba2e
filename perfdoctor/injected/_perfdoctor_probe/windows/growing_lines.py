"""The lines of the user's files that let a container grow, or name it, by its source alone."""

import io
import re

from ..sites import users_modules

_LARGEST_FILE = 1 << 20
"""Bytes: larger ones were not written by hand."""
_MOST_USES = 20
_KEYS = r"(?:\s*\[[^\]\n]*\])*"
_SETS = r"(?:\s*\[[^\]\n]*\])+\s*=(?!=)"
_ADDS = {
    set: _KEYS + r"\s*(?:\.(?:add|update)\(|\|=)",
    list: _KEYS + r"\s*(?:\.(?:append|extend|insert)\(|\+=)",
}
"""By kind of container: a class may have a list in one mode and a set in another."""
_ADDS_ANYHOW = _KEYS + (
    r"\s*(?:\.(?:append|appendleft|extend|extendleft|add|insert|update|setdefault)\(|(?:\+|\|)=)|" + _SETS
)
_REBINDS = r"\s*(?:[-+*]?=(?!=)|:\s*[\w.]+\s*=)"
_DRAWS = r"(?<![\w])(?:random\s*\.\s*)?(?:sample|choices?)\("
_LONGEST = 20
"""Lines of a statement."""
_TARGETS = re.compile(r"\s*(\w+(?:\s*,\s*\w+)*)\s*=(?!=)")
_NAMELESS = ("self", "_modules", "_parameters")
"""In the path to a module: they name no one."""
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
        return self._first(held, re.compile(f"{word}(?:{_ADDS.get(type(held.one), _ADDS_ANYHOW)})"))

    def picks(self, held) -> int:
        """Where elements are taken by their places, or drawn by chance; -1 where no line says so."""
        word = _pattern(held.word)
        return self._first(held, re.compile(rf"{_DRAWS}[^()]*{word}|{word}\s*\[(?!\s*-?[01]\s*\])"))

    def sets(self, held) -> int:
        """Where a variable or an attribute gets a new value; -1 where no line says so."""
        return self._first(held, re.compile(_pattern(held.word) + _REBINDS))

    def extends(self, held) -> int:
        """Where a variable or an attribute is computed from its own last value, given to a function; -1 where no
        statement says so."""
        word = _pattern(held.word)
        sets, names = re.compile(f"{word}{_KEYS}{_REBINDS}"), re.compile(rf"[(\[].*{word}", re.DOTALL)
        for file in held.files:
            for number, line in reversed(list(enumerate(self._lines(file), 1))):
                found = sets.search(line)
                if found and names.search(self._rest(file, number, found.end())):
                    return self._place(file, number)
        return -1

    def _rest(self, file: str, number: int, start: int) -> str:
        """Of a statement, to where its brackets are closed."""
        lines = self._lines(file)[number - 1 :][:_LONGEST]
        text = lines[0][start:]
        for line in lines[1:]:
            if sum(map(text.count, "([{")) <= sum(map(text.count, ")]}")):
                break
            text += "\n" + line
        return text

    def uses(self, held) -> "tuple[list[int], list[str]]":
        """Lines of the same files that name it, and the functions that these call: it may go by another name there.
        Where none does, a library keeps it: lines that name what it is kept by."""
        found, called = self._naming(held, _pattern(held.word))
        keepers = _names(held.path)[:-1]
        return (found, called) if found or not keepers else self._naming(held, rf"\b{keepers[-1]}\b")

    def _naming(self, held, pattern: str, calls: bool = False) -> "tuple[list[int], list[str]]":
        """Lines with such a name, those alone that call something if `calls`, and the functions that they call."""
        word, found, called = re.compile(pattern), [], {}
        for file in held.files:
            for number, line in enumerate(self._lines(file), 1):
                if len(found) < _MOST_USES and word.search(line) and (not calls or _CALLED.search(line)):
                    found.append(self._place(file, number))
                    called.update(dict.fromkeys(_CALLED.findall(line)))
        return found, list(called)

    def registers(self, held, function, name: str) -> int:
        """Where hooks are registered by the method `name`: in the file of the hook or where its owner is named; -1
        where no line says so."""
        files = dict.fromkeys((*self._of(function), *held.files))
        return self._last(files, re.compile(rf"\b{name}\s*\("))

    def called(self, name: str) -> int:
        """Where one of the job's modules calls the method `name`; -1 where no line says so."""
        files = (vars(module)["__file__"] for module in users_modules(self.sites.is_library).values())
        return self._last(files, re.compile(rf"\.{name}\s*\("))

    def wraps(self, held, maker: str) -> int:
        """Where `maker` is called, with what its result is assigned to if there is such a line; -1 where none says
        so."""
        calls = re.compile(rf"(?<!def )(?<!class )\b{maker}\s*\(")
        around_itself = re.compile(rf"(?<![\w.])([\w.]+)\s*=(?!=).*\b{maker}\s*\(.*(?<![\w.])\1\b")
        first = self._last(held.files, around_itself)
        return self._last(held.files, calls) if first < 0 else first

    def around_hooks(self, held, function) -> "tuple[list[int], list[str]]":
        """Lines that name who has the hooks, or what leads to it, and call something; and the hook's own name: from
        there it is called ever more often."""
        named = "|".join(rf"\b{word}\b" for word in _names(held.path)[:-1]) or r"(?!)"
        found, _ = self._naming(held, named, calls=True)
        return found, [function.__name__] if self._of(function) else []

    def is_library(self, code) -> bool:
        """Whether code is not the user's."""
        return self.sites.is_library(code.co_filename)

    def defined(self, code) -> int:
        """Where a function of the user's begins."""
        return self.sites.number((code.co_filename, code.co_firstlineno, code.co_qualname, None))

    def _of(self, function) -> "list[str]":
        """The file of the user's that a function is in; none for a library's."""
        file = function.__code__.co_filename if function is not None else ""
        return [file] if file and not self.sites.is_library(file) else []

    def heirs(self, held) -> "list[int]":
        """Lines that name a tensor, or what such a line of the same function computes: `far = x @ bank.T`, and where
        `far` is named."""
        words, found = {("", _pattern(held.word))}, {}
        waiting = list(words)
        while waiting and len(found) < _MOST_USES:
            scope, word = waiting.pop(0)
            for file in held.files:
                for number, line in enumerate(self._lines(file), 1):
                    if not re.search(word, line) or (scope and self._function(file, number) != scope):
                        continue
                    found[file, number] = None
                    heirs = _TARGETS.match(line)
                    for name in heirs[1].split(",") if heirs else ():
                        heir = (self._function(file, number), _pattern(name.strip()))
                        if heir not in words:
                            words.add(heir)
                            waiting.append(heir)
        return [self._place(*place) for place in list(found)[:_MOST_USES]]

    def _last(self, files, statement) -> int:
        """The last line of the first of these files that has one; -1 where none has."""
        for file in files:
            for number, line in reversed(list(enumerate(self._lines(file), 1))):
                if statement.search(line):
                    return self._place(file, number)
        return -1

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
        return self.sites.number((file, number, self._function(file, number), None))

    def _function(self, file: str, number: int) -> str:
        lines = self._lines(file)
        indent = _indent(lines[number - 1])
        for line in reversed(lines[: number - 1]):
            if line.strip() and _indent(line) < indent:
                indent, header = _indent(line), _FUNCTION.match(line)
                if header is not None:
                    return header[1]
        return "<module>"

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


def _names(path: str) -> "list[str]":
    return [word for word in re.findall(r"\w+", path) if not word.isdigit() and word not in _NAMELESS]


def _pattern(word: str) -> str:
    return r"\." + re.escape(word[1:]) + r"\b" if word.startswith(".") else r"(?<![\w.])" + re.escape(word) + r"\b"
