"""Runs `perfdoctor check` on whole jobs, as a user would, and sees to it that nothing stays behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launches import Launches

JOBS = Path(__file__).parent / "jobs"
TIMEOUT_S = 150
_MARK = "PERFDOCTOR_TEST_MARK"


_LIFE = re.compile(r"^perfdoctor: .* so far\b.*\n", re.MULTILINE)
"""The line for logs that comes every ten seconds: on a busy machine it may come in any test."""


@dataclass(frozen=True)
class Checked:
    """One run of perfdoctor."""

    code: int
    stdout: str
    stderr: str
    runs: Path
    report: Mapping[str, Any] | None
    """The JSON report, when there is one."""

    @property
    def run(self) -> Path:
        """The recording."""
        (run,) = self.runs.iterdir()
        return run

    @property
    def facts(self) -> dict[str, Any]:
        """run.json."""
        return json.loads((self.run / "run.json").read_text())

    @property
    def json(self) -> Mapping[str, Any]:
        assert self.report is not None, self.stderr
        return self.report

    @property
    def steps(self) -> int:
        """Steady, warm-up and windowed steps together: all that the recording holds."""
        anatomy = self.json["anatomy"]
        return sum(anatomy[name] for name in ("count", "warmup", "windowed", "irregular"))

    def check(self, code: str) -> Mapping[str, Any]:
        (found,) = [check for check in self.json["checks"] if check["code"] == code]
        return found

    @property
    def findings(self) -> dict[str, Mapping[str, Any]]:
        return {finding["id"]: finding for check in self.json["checks"] for finding in check["findings"]}

    @property
    def alarming(self) -> list[str]:
        """Findings that are more than a note."""
        return [name for name, finding in self.findings.items() if finding["severity"] != "note"]

    @property
    def contended(self) -> bool:
        """Whether other processes kept the job from its CPUs."""
        return any(note["code"] == "PD92" for note in self.json["integrity"]["notes"])


Said = Callable[..., Checked]
"""`perfdoctor WORDS` in the test's own process, for what launches no job."""


class Perfdoctor:
    """Starts perfdoctor in a directory of its own, with a clean environment."""

    def __init__(self, directory: Path, launches: Launches) -> None:
        self.directory = directory
        self.launches = launches
        self.count = 0
        self.mark = uuid.uuid4().hex
        dropped = ("PERFDOCTOR", "PYTHON", "VIRTUAL_ENV", "CONDA", "COV_", "RANK", "WORLD_SIZE", "LOCAL_RANK")
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
        # For torchrun and the like, as in an activated environment.
        self.environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", _MARK: self.mark}
        self.environment["XDG_STATE_HOME"] = str(directory / "state")
        # Tests that run beside this one are neighbours, and found as such, as are other machines that the hypervisor
        # gives this one's CPUs to; PD12's own tests take this back.
        self.environment |= dict.fromkeys(
            ("PERFDOCTOR_CHECK_IGNORE", "PERFDOCTOR_REPORT_IGNORE"), "PD12.cpu-contention,PD12.steal"
        )

    def start(
        self, *words: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None, **popen: Any
    ) -> subprocess.Popen[bytes]:
        """`perfdoctor WORDS` in a session of its own, so that a signal to its group reaches nobody else."""
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            [sys.executable, "-m", "perfdoctor", *map(str, words)],
            env={**self.environment, **(env or {})},
            cwd=cwd or self.directory,
            start_new_session=True,
            **{**streams, **popen},
        )

    def bare(self, *words: str | Path) -> subprocess.CompletedProcess[bytes]:
        """`python WORDS`, without perfdoctor: once in a session, in a directory of its own."""

        def launch(here: Path) -> subprocess.CompletedProcess[bytes]:
            return subprocess.run(
                [sys.executable, *map(str, words)],
                env=self.environment,
                cwd=here,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TIMEOUT_S,
                check=False,
            )

        return self.launches.once(("bare", words), launch)

    def __call__(self, *words: str | Path, **start: Any) -> Checked:
        """`perfdoctor WORDS` until it has ended."""
        return self.finish(self.start(*words, **start), self.directory)

    def check(self, *words: str | Path, during: Callable[[Started], None] | None = None, **start: Any) -> Checked:
        """`perfdoctor check WORDS`, with a JSON report and a runs directory of its own."""
        self.count += 1
        here = self.directory / f"check-{self.count}"
        here.mkdir()
        options = ["--runs", here / "runs", "--output", f"json:{here / 'report.json'}"]
        stdin = start.pop("input", None)
        if stdin is not None:
            start["stdin"] = subprocess.PIPE
        process = self.start("check", *options, *words, **start)
        if during is not None:
            during(Started(process, here / "runs"))
        return self.finish(process, here, stdin)

    def check_once(self, *words: str | Path, env: Mapping[str, str] | None = None) -> Checked:
        """The same, once in a session, in a directory that is the job's; not to be changed by those who look."""

        def launch(here: Path) -> Checked:
            return Perfdoctor(here, self.launches).check(*words, env=env)

        return self.launches.once(("check", words, env), launch)

    def finish(self, process: subprocess.Popen[bytes], here: Path, stdin: bytes | None = None) -> Checked:
        """Wait for the end; nothing of it may be left."""
        try:
            stdout, stderr = process.communicate(stdin, timeout=TIMEOUT_S)
        finally:
            left = self.end_all()
        assert left == [], "processes were left behind"
        file = here / "report.json"
        return Checked(
            process.returncode,
            (stdout or b"").decode("utf-8", "replace"),
            _LIFE.sub("", (stderr or b"").decode("utf-8", "replace")),
            here / "runs",
            json.loads(file.read_text()) if file.exists() else None,
        )

    def end_all(self) -> list[str]:
        """Kill what carries our mark; the command lines of what did."""
        found = []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                if f"{_MARK}={self.mark}".encode() not in environ.read_bytes():
                    continue
                found.append((environ.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode())
                os.kill(int(environ.parent.name), signal.SIGKILL)
            except OSError:
                continue
        return found


@dataclass(frozen=True)
class Started:
    """perfdoctor while it runs."""

    process: subprocess.Popen[bytes]
    runs: Path

    def wait_for_steps(self, least: int) -> None:
        """Until the job has written that many steps."""
        self._wait(lambda: self._steps() >= least)

    def wait_for_output(self, text: str) -> None:
        """Until the job has printed `text`; needs `--job-output file`."""
        self._wait(lambda: any(text in path.read_text() for path in self.runs.glob("*/job.out")))

    def job(self) -> int:
        """The job's process id."""
        names = sorted(path.name for path in self.runs.glob("*/process-*.jsonl"))
        return int(names[0].split("-")[1])

    def interrupt(self) -> None:
        """What a terminal does on Ctrl-C."""
        os.killpg(self.process.pid, signal.SIGINT)

    def _steps(self) -> int:
        steps = 0
        for path in self.runs.glob("*/process-*.jsonl"):
            for line in path.read_text().splitlines():
                if line.startswith('{"k":"steps"') and line.endswith("}"):
                    steps += json.loads(line)["n"]
        return steps

    def _wait(self, done: Callable[[], bool]) -> None:
        def done_or_dead() -> bool:
            assert self.process.poll() is None, "perfdoctor ended too early"
            return done()

        wait_until(done_or_dead)


def wait_until(done: Callable[[], bool]) -> None:
    """Look again and again; how long it takes does not matter."""
    deadline = time.monotonic() + TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def make_interpreter(directory: Path, sites: Sequence[str | Path] = ()) -> Path:
    """A virtual environment's interpreter, without pip, that sees the packages in `sites`."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True, timeout=60)
    (packages,) = directory.glob("lib/python*/site-packages")
    if sites:
        # Lines of a .pth file go on the path; the .pth files in those directories are not read, so that an
        # editable install of perfdoctor there does not count.
        (packages / "borrowed.pth").write_text("".join(f"{site}\n" for site in sites))
    return directory / "bin" / "python"
