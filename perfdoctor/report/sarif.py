"""SARIF 2.1.0, which GitHub code scanning and many editors read."""

from __future__ import annotations

import json
from urllib.parse import quote

from ..version import VERSION
from .sheet import Notice, Sheet, Status

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def render_sarif(sheet: Sheet) -> str:
    """One run; accepted notices are kept, with the reason as their justification."""
    numbers = {rule.id: number for number, rule in enumerate(sheet.rules)}
    document = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "perfdoctor",
                        "semanticVersion": VERSION,
                        "rules": [
                            {
                                "id": rule.id,
                                "name": rule.id,
                                "shortDescription": {"text": rule.title},
                                "fullDescription": {"text": rule.title},
                                "help": {"text": rule.help, "markdown": rule.help},
                            }
                            for rule in sheet.rules
                        ],
                    }
                },
                "invocations": [{"executionSuccessful": not any(case.status is Status.ERROR for case in sheet.cases)}],
                "results": [_result(notice, numbers) for notice in sheet.notices],
                "properties": {"verdict": sheet.verdict},
            }
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _result(notice: Notice, numbers: dict[str, int]) -> dict[str, object]:
    place = notice.location
    physical = {
        "artifactLocation": {"uri": quote(place.file), "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": max(1, place.line)},
    }
    location: dict[str, object] = {"physicalLocation": physical}
    if place.function:
        location["logicalLocations"] = [{"name": place.function, "kind": "function"}]
    result: dict[str, object] = {
        "ruleId": notice.rule,
        "ruleIndex": numbers[notice.rule],
        "level": notice.level,
        "message": {"text": f"{notice.message} {notice.advice}".strip()},
        "locations": [location],
        # Neither line nor value goes into it, so a finding stays the same one when the file grows.
        "partialFingerprints": {"perfdoctor/v1": notice.fingerprint},
    }
    if notice.suppressed:
        result["suppressions"] = [{"kind": "external", "justification": notice.suppressed}]
    return result
