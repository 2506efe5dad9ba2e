"""Times operators that the job used, in an interpreter of its own, round by round.

The launcher runs this twice at once after the job has ended: with the variables that limit vector extensions and
without, because libraries read them once. First line on stdin: the operators. Every further line asks for one
round. Answers are lines of JSON on stdout.
"""

import json
import sys
import time

import torch

from . import replay

_ROUND_NS = 100_000_000
"""Of all operators in a round; an operator gets its share."""
_MOST_CALLS = 50


def main() -> None:
    """Until stdin ends."""
    order = json.loads(sys.stdin.readline())
    torch.set_num_threads(order["threads"])
    calls = [_prepared(op) for op in order["ops"]]
    with torch.no_grad():
        _tell({"capability": torch.backends.cpu.get_cpu_capability(), "can": [call is not None for call in calls]})
        for _ in sys.stdin:
            _tell([None if call is None else _time(call, _ROUND_NS // max(1, len(calls))) for call in calls])


def _tell(answer) -> None:
    print(json.dumps(answer), flush=True)


def _prepared(op: dict):
    """A call of the operator, made once already; None when it cannot be."""
    try:
        call = replay.prepared(op["name"], op["shapes"], op["types"], op["concrete"])
        with torch.no_grad():
            call()
    except Exception:  # not replayable with plain arguments
        return None
    return call


def _time(call, limit_ns: int) -> float:
    """Microseconds of one call, the fastest that fits into the limit: what disturbs only ever adds."""
    best, spent = None, 0
    for _ in range(_MOST_CALLS):
        began = time.perf_counter_ns()
        call()
        took = time.perf_counter_ns() - began
        best = took if best is None else min(best, took)
        spent += took
        if spent > limit_ns:
            break
    return best / 1000
