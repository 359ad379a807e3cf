"""The sign of life of a run's owner, and its look whether the run is still its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rlf.core import RlfError
from rlf.lineage.lease import BEAT_S, LeaseLost
from rlf.lineage.store import Store

logger = logging.getLogger(__name__)


_JOIN_S = 1.0
"""Longer than a beat takes, unless another process holds the lineage; then the thread is left to its wait."""


class Heartbeat:
    """Writes a run's heartbeat on a thread of its own while the block runs."""

    def __init__(self, store: Store, run_id: str, lose: Callable[[LeaseLost], object]) -> None:
        """Takes a run that this process has started or resumed with the same store.

        Args:
            lose: called once, on that thread, when the lineage or the run is no longer this process's to write.
        """
        self._store = store
        self._lease = store.leases[run_id]
        self._lose = lose
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat_until_ended, name="lineage-heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(_JOIN_S)

    def _beat_until_ended(self) -> None:
        while not self._ended.wait(BEAT_S):
            try:
                with self._store.write() as connection:
                    self._lease.beat(connection)
            except LeaseLost as error:
                self._lose(error)
                return
            except RlfError as error:  # the next step ends the run for it, unless it is over by then
                logger.warning("run %s: no heartbeat could be written: %s", self._lease.run_id, error)
