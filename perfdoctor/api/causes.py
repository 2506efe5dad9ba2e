"""The judgements that all checks share: who waits for what, who had the CPUs, what would be left."""

from __future__ import annotations

from ..evidence.causes import *
