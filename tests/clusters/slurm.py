"""A Slurm of two nodes on this machine, of one test module and gone after it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.stop_together import free_port

ROOT = Path(os.environ.get("SLURM_ROOT", "/"))
"""Where Debian's packages slurmctld, slurmd, slurm-client, slurm-wlm-basic-plugins, munge, libmunge2 and libhwloc15
were installed or unpacked."""
_LIBRARIES = ROOT / "usr/lib/x86_64-linux-gnu"
_CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/linear
SchedulerType=sched/builtin
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
PropagateResourceLimits=NONE
ReturnToService=2
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=1 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE
"""


@dataclass(frozen=True)
class Slurm:
    """A running one."""

    srun: str
    environment: Mapping[str, str]


def _program(name: str) -> str:
    """Skips the test where there is none."""
    folders = [str(ROOT / "usr/bin"), str(ROOT / "usr/sbin")]
    found = [path for kind in (name, f"{name}-wlm") for path in [shutil.which(kind, path=":".join(folders))] if path]
    if not found:
        pytest.skip(f"no {name}: install Debian's slurmctld, slurmd and munge, or unpack them to $SLURM_ROOT")
    return found[0]


@contextmanager
def running(folder: Path) -> Iterator[Slurm]:
    """Its daemons run as this user and are ended, by their pids, on leaving."""
    munged, controller, daemon, stepper, srun, info = map(
        _program, ("munged", "slurmctld", "slurmd", "slurmstepd", "srun", "sinfo")
    )
    folder.chmod(0o755)
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    plugins = _LIBRARIES / "slurm-wlm"
    (folder / "slurm.conf").write_text(
        _CONFIGURATION.format(
            folder=folder,
            host=socket.gethostname(),
            user=subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip(),
            plugins=plugins,
            controller=free_port(),
            first=free_port(),
            second=free_port(),
        )
    )
    libraries = f"{_LIBRARIES}:{plugins}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "LD_LIBRARY_PATH": libraries.rstrip(":")}
    with ExitStack() as stack:
        places = [f"--{name}={folder}/munge.{end}" for name, end in (("socket", "socket"), ("key-file", "key"))]
        places += [f"--{name}={folder}/munge.{end}" for name, end in (("pid-file", "pid"), ("log-file", "log"))]
        for command in (
            [munged, "--foreground", "--force", *places, f"--seed-file={folder}/munge.seed"],
            [controller, "-D", "-c"],
            [daemon, "-D", "-N", "n1", "-d", stepper],
            [daemon, "-D", "-N", "n2", "-d", stepper],
        ):
            log = stack.enter_context((folder / "daemons.log").open("ab"))
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
            stack.callback(_end, process)
            if command[0] == munged:
                _wait(lambda: (folder / "munge.socket").exists(), folder)
        _wait(lambda: _idle(info, environment) == 2, folder)
        yield Slurm(srun, environment)


def _idle(info: str, environment: Mapping[str, str]) -> int:
    """Nodes that take jobs."""
    asked = subprocess.run([info, "-h", "-N", "-o", "%T"], env=dict(environment), capture_output=True, text=True)
    return asked.stdout.split().count("idle")


def _wait(done: Callable[[], bool], folder: Path) -> None:
    deadline = time.monotonic() + 60
    while not done():
        if time.monotonic() > deadline:
            logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in folder.glob("*.log"))
            raise AssertionError(f"Slurm did not start:\n{logs}")
        time.sleep(0.2)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
