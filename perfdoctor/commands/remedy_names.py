"""Names of remedies as a user types them."""

from __future__ import annotations

from ..errors import PerfdoctorError, nearest
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
        argument = catalogue.BY_NAME[base].argument
        wanted = base if argument is None else f"{base}={argument}"
    else:
        close = nearest(base, catalogue.BY_NAME)
        wanted = f"{close}{equals}{value}" if close else ""
    advice = f"did you mean {wanted}?" if wanted else "perfdoctor explain --remedies lists them all"
    return PerfdoctorError(f"unknown remedy {name}", slug="unknown-remedy", advice=advice)
