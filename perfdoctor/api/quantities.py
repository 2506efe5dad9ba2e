"""What a check may ask: `Evidence`, its parts, and `Missing`."""

from __future__ import annotations

from ..evidence.model import *
