"""A quantity that was not seen, and a place in the user's code."""

from __future__ import annotations

from ...recording.base import Missing as Missing
from ...recording.base import MissingCode as MissingCode
from ...recording.base import Site as Site
