"""Names of runs: sortable by time, readable aloud, unique."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime


def new_run_id() -> str:
    """`YYYYMMDD-HHMMSS-xxxx` in UTC with four random characters."""
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"
    tail = "".join(secrets.choice(alphabet) for _ in range(4))
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{tail}"
