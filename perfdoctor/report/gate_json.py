"""A gate for programs. Within a version fields are only added; the raw log-ratios of all pairs are kept."""

from __future__ import annotations

import json

from ..gate.model import GateResult
from ..version import VERSION
from .jsonform import plain

# perfdoctor.gate/1: the first version
SCHEMA = "perfdoctor.gate/1"


def render_gate_json(result: GateResult, exit_code: int) -> str:
    """The gate as a JSON document, ending in a newline."""
    document = {
        "schema": SCHEMA,
        "perfdoctor": VERSION,
        "verdict": result.verdict.value,
        "exit_code": exit_code,
        "reason": plain(result.reason),
        "before": plain(result.before),
        "after": plain(result.after),
        "judgements": [plain(judgement) for judgement in result.judgements],
        "why": plain(result.why),
        "notes": plain(result.notes),
        "pairs": {name: plain(tuple(values)) for name, values in result.pairs.items()},
        "seconds": plain(result.seconds),
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
