"""A gate for programs. Within a version fields are only added; the raw log-ratios of all pairs are kept."""

from __future__ import annotations

import json
from typing import cast

from ..gate.model import GateResult
from ..version import VERSION
from .jsonform import Json, plain

# perfdoctor.gate/1: the first version
SCHEMA = "perfdoctor.gate/1"


def render_gate_json(result: GateResult, exit_code: int) -> str:
    """The gate as a JSON document, ending in a newline."""
    head = {"schema": SCHEMA, "perfdoctor": VERSION, "verdict": result.verdict.value, "exit_code": exit_code}
    document = {**head, **cast("dict[str, Json]", plain(result))}
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
