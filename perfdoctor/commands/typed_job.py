"""The job as it was typed: a script, a module, or a whole command after `--`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from ..launch import command as commands
from ..launch.masking import masked


@dataclass(frozen=True, slots=True)
class TypedJob:
    """Starts nothing and looks at nothing until `command` is asked for."""

    words: tuple[str, ...] = ()
    """The script and its arguments, the module's arguments, or the command after `--`."""
    verbatim: bool = False
    """It came after `--`."""
    module: str | None = None
    python: str | None = None
    """The interpreter that was asked for; None for that of the project."""
    ours: tuple[str, ...] = ()
    """Words among the job's that perfdoctor has as options too, perhaps meant for it."""

    @property
    def interpreter(self) -> str:
        """The one that runs it, unless it is a command of its own."""
        return self.python or commands.python_for_jobs()

    def command(self) -> commands.Command:
        """Raises PerfdoctorError for a job that cannot run."""
        if self.verbatim:
            return commands.verbatim(self.words)
        if self.module:
            return commands.module(self.interpreter, self.module, self.words)
        if not self.words:
            raise commands.nothing_to_run()
        return commands.script(self.interpreter, self.words[0], self.words[1:])

    def __str__(self) -> str:
        """To be typed again; without secrets."""
        words = shlex.join(masked(self.words))
        if self.verbatim:
            return f"-- {words}"
        target = f"-m {shlex.quote(self.module)} {words}".rstrip() if self.module else words
        return f"--python {shlex.quote(self.python)} {target}" if self.python else target
