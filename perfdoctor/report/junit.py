"""JUnit XML, which every CI system shows: one test case for each thing looked at."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from .sheet import Sheet, Status

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML document may hold, escaped or not."""
_ELEMENTS = {Status.FAILED: "failure", Status.ERROR: "error", Status.SKIPPED: "skipped"}


def render_junit(sheet: Sheet) -> str:
    """A `testsuites` document; what could not be decided is an error, not a failure."""
    counts = {status: sum(case.status is status for case in sheet.cases) for status in Status}
    numbers = {
        "tests": str(len(sheet.cases)),
        "failures": str(counts[Status.FAILED]),
        "errors": str(counts[Status.ERROR]),
        "time": f"{sheet.seconds:.3f}",
    }
    suites = ElementTree.Element("testsuites", {"name": "perfdoctor", **numbers})
    suite = ElementTree.SubElement(
        suites, "testsuite", {"name": f"perfdoctor {sheet.kind}", **numbers, "skipped": str(counts[Status.SKIPPED])}
    )
    for case in sheet.cases:
        element = ElementTree.SubElement(
            suite, "testcase", {"classname": f"perfdoctor.{sheet.kind}", "name": _clean(f"{case.id} {case.title}")}
        )
        if case.status in _ELEMENTS:
            child = ElementTree.SubElement(element, _ELEMENTS[case.status], {"message": _clean(case.text)})
            if case.status is not Status.SKIPPED:
                child.set("type", case.id)
                child.text = _clean(case.text)
    ElementTree.SubElement(suite, "system-out").text = _clean(sheet.verdict)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
