"""Replies that judges gave before: in memory, and in a file where one is named."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import sqlite3
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

from rlf.core import RlfError
from rlf.core.files import use_wal
from rlf.endpoints import TokenLogprob
from rlf.rewards.judging.settings import Cache

logger = logging.getLogger(__name__)

_BUSY_S = 10.0

Known: TypeAlias = tuple[str, tuple[TokenLogprob, ...]]
"""A text with its token probabilities."""


def key_of(asked: Mapping[str, Any]) -> str:
    """The hash of a request: judge, its endpoints, the whole body, the number of the vote."""
    return hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()


class ReplyCache:
    """Replies by key. Processes may share a file, which a thread waits for; one that fails later on is done without."""

    def __init__(self, settings: Cache) -> None:
        """Opens the file. Raises RlfError."""
        self._max = settings.max_replies
        self._replies: OrderedDict[str, Known] = OrderedDict()
        self._file = None if settings.file is None else _File(settings.file)
        self._thread = ThreadPoolExecutor(1, "judge-cache")

    async def get(self, key: str) -> Known | None:
        """The reply; None where there is none yet."""
        found = self._replies.get(key)
        if found is None and self._file is not None:
            found = await self._in_thread(self._file.get, key)
        if found is not None:
            self._keep_reply(key, found)
        return found

    async def put(self, key: str, text: str, logprobs: tuple[TokenLogprob, ...]) -> None:
        """Keeps a reply."""
        self._keep_reply(key, (text, logprobs))
        if self._file is not None:
            await self._in_thread(self._file.put, key, text, logprobs)

    def close(self) -> None:
        """Closes the file, once what is under way is written."""
        self._thread.shutdown()
        if self._file is not None:
            self._file.close()

    async def _in_thread(self, work: Any, *arguments: Any) -> Any:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)
        except sqlite3.Error as error:
            logger.warning("cache of judges: %s", error)
            return None

    def _keep_reply(self, key: str, reply: Known) -> None:
        self._replies[key] = reply
        self._replies.move_to_end(key)
        if len(self._replies) > self._max:
            self._replies.popitem(last=False)


class _File:
    """Replies in SQLite; each method blocks."""

    def __init__(self, path: str) -> None:
        """Raises RlfError."""
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False)
            use_wal(self._connection, _BUSY_S)
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, text TEXT, logprobs TEXT) WITHOUT ROWID"
            )
            self._connection.commit()
        except (OSError, sqlite3.Error) as error:
            raise RlfError(f"{path}: cannot be used as a cache: {error}. Name another `cache.file`.") from error

    def get(self, key: str) -> Known | None:
        row = self._connection.execute("SELECT text, logprobs FROM replies WHERE key = ?", (key,)).fetchone()
        try:
            return None if row is None else (row[0], tuple(TokenLogprob(*each) for each in json.loads(row[1])))
        except (ValueError, TypeError):  # written by another version: as good as none
            return None

    def put(self, key: str, text: str, logprobs: tuple[TokenLogprob, ...]) -> None:
        packed = json.dumps([[each.token, each.logprob, dict(each.top)] for each in logprobs])
        with self._connection:
            self._connection.execute("INSERT OR REPLACE INTO replies VALUES (?, ?, ?)", (key, text, packed))

    def close(self) -> None:
        self._connection.close()
