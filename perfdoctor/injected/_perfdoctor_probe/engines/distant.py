"""A process that an engine has placed where the run directory is not: it records beside the engine's own files.

Runs before the job's first line, so only built-in and already loaded modules are used.
"""

import os
import sys
import time

VARIABLE = "PERFDOCTOR_RAY"
"""For workers of a cluster that was there before the job: the token of the run and, behind a colon, the boot id of the
machine that its directory is on."""
HOOK = "RAY_RUNTIME_ENV_HOOK"
"""Ray calls the function of this name when a driver connects to a cluster."""
USERS_HOOK = "PERFDOCTOR_RAY_HOOK"
"""What the job had in it."""
OURS = "_perfdoctor_probe.engines.ray_driver.hook"

token = ""
"""Of the run that this process sends home what it records; "" where it writes into the run directory."""


def place(run: str, boot: str) -> str:
    """The directory to record in: `run` where it can be reached from here. Another one is made only with torch."""
    global token
    environment = os.environ
    told = environment.pop(VARIABLE, None)
    if told is None:
        return run
    name, _, home = told.partition(":")
    # A directory on shared storage holds files of other machines, but not their sockets.
    if home == boot and os.path.isdir(run):
        return run
    token = name
    here = f"{_session()}/perfdoctor-{os.getpid()}-{time.time_ns()}"
    # For what this process starts: it writes there, and is sent home with it.
    environment["PERFDOCTOR_RUN"] = here
    return here


def _session() -> str:
    """Where Ray keeps what this node needs while the cluster is up: its workers are told of a socket in there."""
    for word in getattr(sys, "orig_argv", []):
        name, _, value = word.partition("=")
        if name in ("--raylet-name", "--object-store-name") and "/sockets/" in value:
            return value.rpartition("/sockets/")[0]
    return os.environ.get("TMPDIR") or "/tmp"


def announce() -> None:
    """Have Ray ask us, should this process become a driver; first whom it would have asked."""
    environment = os.environ
    users = environment.get(HOOK)
    if users != OURS:
        if users:
            environment[USERS_HOOK] = users
        environment[HOOK] = OURS
