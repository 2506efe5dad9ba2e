"""Names of remedies as a user types them."""

from __future__ import annotations

import difflib

from ..errors import PerfdoctorError
from ..injected._perfdoctor_probe.remedies import catalogue


def known(name: str) -> str:
    """`name`, if it is a remedy's. Raises PerfdoctorError with the nearest one that is."""
    try:
        catalogue.parse(name)
    except catalogue.UnknownRemedyError:
        raise _unknown(name) from None
    return name


def _unknown(name: str) -> PerfdoctorError:
    base, equals, value = name.partition("=")
    if base in catalogue.BY_NAME:
        takes = catalogue.BY_NAME[base].argument is not None
        wanted = f"{base}={catalogue.BY_NAME[base].argument}" if takes else base
        return PerfdoctorError(f"{name} is no remedy", slug="unknown-remedy", advice=f"did you mean {wanted}?")
    close = difflib.get_close_matches(base, catalogue.BY_NAME, n=1, cutoff=0.4)
    advice = f"did you mean {close[0]}{equals}{value}?" if close else "perfdoctor explain --remedies lists them all"
    return PerfdoctorError(f"there is no remedy {name}", slug="unknown-remedy", advice=advice)
