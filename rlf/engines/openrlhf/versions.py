"""The version of OpenRLHF that rlf is made for, and the Pythons that it can be installed for."""

from __future__ import annotations

import sys

VERSION = "0.11.2"
NEWEST_PYTHON = (3, 12)
"""The last Python that this version has a wheel for; there is nothing to build it from."""


def find_python_complaint() -> str | None:
    """Why OpenRLHF cannot be installed for this interpreter; None where it can."""
    if sys.version_info[:2] <= NEWEST_PYTHON:
        return None
    here, newest = (".".join(map(str, version)) for version in (sys.version_info[:2], NEWEST_PYTHON))
    return f"OpenRLHF {VERSION} cannot be installed for Python {here}: it has wheels up to {newest}"
