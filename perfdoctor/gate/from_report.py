"""A report of `perfdoctor check --output json` as a stored arm of one launch. Pure: text in, values out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from typing import Any

from ..errors import PerfdoctorError
from .baseline import Baseline, KnownFinding, Stored
from .model import Assume

REPORT = "perfdoctor.report/"
GATE = "perfdoctor.gate/"


def schema_of(text: str) -> str:
    """What a JSON document says it is; "" when it does not."""
    try:
        document = json.loads(text)
    except ValueError:
        return ""
    return str(document.get("schema", "")) if isinstance(document, dict) else ""


def read_report(text: str, place: str) -> Baseline:
    """Raises PerfdoctorError for a report that holds no launch: one of an older perfdoctor, or cut."""
    try:
        document = json.loads(text)
        launch, job = document["launch"], document["environment"]["job"]
        return Baseline(
            date.fromisoformat(str(job["started"])[:10]),
            place,
            _texts(launch["configuration"]),
            _texts(launch["machine"]),
            {
                str(name): Stored(metric["unit"], Assume(metric["assume"]), metric["label"], (metric["value"],))
                for name, metric in launch["metrics"].items()
                if isinstance(metric["value"], int | float)
            },
            tuple(_finding(finding) for check in document["checks"] for finding in check["findings"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PerfdoctorError(
            f"{place} is a report without the numbers of its launch",
            slug="report-without-launch",
            advice="it was written by an older perfdoctor: name the recording instead, a directory in .perfdoctor/runs",
        ) from error


def _texts(table: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in table.items()}


def _finding(finding: Mapping[str, Any]) -> KnownFinding:
    place = finding.get("location")
    where = f"{place['file']}::{place['function']}" if place else ""
    return KnownFinding(str(finding["fingerprint"]), str(finding["id"]), where)
