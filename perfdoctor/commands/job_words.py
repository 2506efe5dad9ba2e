"""Which words of the command line are perfdoctor's, and which the job's."""

from __future__ import annotations

import signal
from typing import Any

from typer.core import TyperArgument, TyperCommand

INTERRUPTED = 128 + signal.SIGINT
"""What a shell reports for a program that SIGINT ended: the second Ctrl-C."""
IS_COMMAND = "perfdoctor.command"
"""In a context's `meta`: whether the job's words are a whole command, after `--`."""


class Command(TyperCommand):
    """Every option is also a variable, PERFDOCTOR_CHECK_STEPS; one line in the README says so, not each help line."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for parameter in self.params:
            parameter.show_envvar = False  # type: ignore[attr-defined]
            if isinstance(parameter, TyperArgument):
                # Its metavar says it all; typer would put `<list[str]>` behind.
                parameter.display_type_rich = lambda ctx: ""  # type: ignore[method-assign]

    def invoke(self, ctx: Any) -> None:
        """What the command returns is the exit code. Click would turn Ctrl-C into 1, which means findings."""
        try:
            code = super().invoke(ctx)
        except KeyboardInterrupt:
            code = INTERRUPTED
        ctx.exit(int(code or 0))


class JobCommand(Command):
    """Leaves to the job everything after SCRIPT, `-m MODULE` or `--`, whatever it looks like."""

    allow_interspersed_args = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own, job, ctx.meta[IS_COMMAND] = self._split(args)
        # Without a job nothing may follow: an option that lacks its value would take the `--`.
        return super().parse_args(ctx, [*own, "--", *job] if job else own)

    def _split(self, args: list[str]) -> tuple[list[str], list[str], bool]:
        """Our own arguments, the job's, and whether the job's are a whole command."""
        index = 0
        while index < len(args):
            word = args[index]
            if word == "--":
                return args[:index], args[index + 1 :], True
            if not word.startswith("-") or word == "-":
                return args[:index], [word, *_without_dashes(args[index + 1 :])], False
            after = index + 1 + self._values_of(word)
            if word.startswith(("-m", "--module")):
                return args[:after], _without_dashes(args[after:]), False
            index = after
        return args, [], False

    def _values_of(self, word: str) -> int:
        """How many of the next words belong to this option: one of `-o json`, `-vo json`, but none of `-ojson`."""
        taking = {
            opt: param.nargs for param in self.params for opt in param.opts if not getattr(param, "is_flag", True)
        }
        if word.startswith("--"):
            return taking.get(word, 0)
        first = next((at for at, letter in enumerate(word[1:], 1) if f"-{letter}" in taking), None)
        return taking[f"-{word[-1]}"] if first is not None and first == len(word) - 1 else 0


class GateCommand(JobCommand):
    """Takes `gate train.py --against main` too, as people type it: without, there would be nothing to compare with."""

    def _split(self, args: list[str]) -> tuple[list[str], list[str], bool]:
        own, job, is_command = super()._split(args)
        words = args[len(own) :]
        end = words.index("--") if "--" in words else len(words)
        first = next((index for index, word in enumerate(words[:end]) if _compares(word)), end)
        if is_command or first == end or any(map(_compares, own)):
            return own, job, is_command
        return [*own, *words[first:end]], [*words[:first], *words[end + 1 :]], False


def _compares(word: str) -> bool:
    """Whether it says what to compare with."""
    return word.partition("=")[0] in ("--against", "--baseline", "--from")


def _without_dashes(words: list[str]) -> list[str]:
    """`SCRIPT -- ARGS` means the same as `SCRIPT ARGS`."""
    return words[1:] if words[:1] == ["--"] else words
