"""A gate's page with all that it can have."""

from __future__ import annotations

import random
from dataclasses import replace

from diagnosis_samples import healthy, two_findings
from gate_samples import REGRESSION

from perfdoctor.report.html.gate import render_gate_html

_RNG = random.Random(0)
SLOWER = replace(REGRESSION, pairs={"step_time.core": [_RNG.gauss(0.06, 0.01) for _ in range(16)]})


def slower_gate() -> str:
    """16 pairs, most of them slower than is tolerated; the arm of now has findings that the other has not."""
    return render_gate_html(SLOWER, 0.05, (healthy(), two_findings()))
