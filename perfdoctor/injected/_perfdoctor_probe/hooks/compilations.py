"""What Dynamo compiled, when, and why again: read from its own record of compilations, which it keeps in any case.

Nothing of Dynamo is imported or changed here. It keeps its last 64 compilations, and each takes 20 ms and more, so that
reading them twice a second misses none.
"""

import sys
import time

from ..compiler import DYNAMO

_REASON = 200
"""Characters kept of a reason."""
_RESUME = "torch_dynamo_resume_in_"
"""How Dynamo calls the rest of a function behind a break: `torch_dynamo_resume_in_forward_at_12`."""


class Compilations:
    """Those that have been recorded are not recorded again."""

    def __init__(self, recorder, sites) -> None:
        self.recorder = recorder
        self.sites = sites
        self.reset()

    def reset(self) -> None:
        self.seen: "set[tuple]" = set()

    def flush(self) -> None:
        """Queue what was compiled since the last call."""
        module = sys.modules.get(DYNAMO)
        if module is None:
            return
        now_us, now = time.time_ns() // 1000, time.perf_counter_ns()
        for one in module.get_compilation_metrics():
            began_us = getattr(one, "start_time_us", None)
            key = one.compile_id, began_us
            if began_us and key not in self.seen:  # older versions of torch note no moment
                self.seen.add(key)
                self._record(one, now - 1000 * (now_us - began_us))

    def _record(self, one, t: int) -> None:
        name = one.co_name or ""
        resumed = name.startswith(_RESUME)
        line = one.co_firstlineno or 0
        if resumed:
            name = name[len(_RESUME) :].rpartition("_at_")[0]
        known = one.co_filename and not self.sites.is_library(one.co_filename)
        self.recorder.record(
            "compiled",
            t=t,
            us=one.duration_us or 0,
            frame=str(one.compile_id).partition("/")[0],
            site=self.sites.number((one.co_filename, line, name, None)) if known else None,
            resumed=resumed,
            reason=_first_line((getattr(one, "recompile_reason", None) or "").partition(": ")[2]),
            broke=_first_line(next(iter(one.restart_reasons or ()), "")),
            failed=_first_line(one.fail_reason or ""),
        )


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:_REASON]
