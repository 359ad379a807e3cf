"""What the page shows and does of worlds, each in a fork: plain values in, the JSON of commands out."""

from __future__ import annotations

from rlf.apps.worlds.worlds import list_worlds, play_world

TASKS = (list_worlds, play_world)
