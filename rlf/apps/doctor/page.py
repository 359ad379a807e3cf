"""What the page shows of the machine, in a fork: plain values in, the JSON of commands out."""

from __future__ import annotations

from rlf.apps.doctor.findings import examine

TASKS = (examine,)
