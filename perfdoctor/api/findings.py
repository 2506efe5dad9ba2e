"""What a check says: outcomes, findings, fixes, measurements."""

from __future__ import annotations

from ..diagnosis.costs import *
from ..diagnosis.findings import *
from ..diagnosis.outcomes import *
