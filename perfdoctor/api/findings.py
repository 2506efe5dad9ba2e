"""What a check says: outcomes, findings, fixes, measurements."""

from __future__ import annotations

from ..diagnosis.findings import *
