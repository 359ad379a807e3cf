"""A corpus behind Search-R1's `POST /retrieve`, so that what was written for its retriever talks to rlf's."""

from __future__ import annotations

import asyncio
import logging
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlf.core import Place, RlfError
from rlf.core.process import usable_cores
from rlf.core.servers import guard_visitors, listening, serve_app
from rlf.data.files import Row, fail, shown_name
from rlf.data.source import READERS

# The index is SQLite's FTS5, which scores stemmed words with BM25 (k1 = 1.2, b = 0.75). It is read in place: memory
# holds the pages that queries touch, whatever the size of the corpus.

logger = logging.getLogger(__name__)

MAX_SCORED: Final = 10_000
"""Passages that the rarest words of a query may have together. See `Corpus.search`."""
MAX_COUNTED: Final = 50_000
"""Passages that another word may have, or a twentieth of the corpus: a word of more is left out of the query."""
_SUFFIX = ".bm25"
_FORMAT = "1"
_MMAP_BYTES: Final = 1 << 40
_BUILD_CACHE_KIB: Final = 400_000
# Only words are quoted into the FTS5 query: its own operators (AND, NEAR, *) must stay text.
_WORD = re.compile(r"\w+")
_TABLE = (
    "CREATE VIRTUAL TABLE passages USING fts5(id UNINDEXED, contents, tokenize='porter unicode61 remove_diacritics 2')"
)
_SEARCH = "SELECT id, contents, -rank FROM passages WHERE passages MATCH ? ORDER BY rank LIMIT ?"


@dataclass(frozen=True, slots=True)
class Passage:
    """One passage found."""

    id: str
    contents: str
    score: float
    """BM25; larger is better."""


class Corpus:
    """An open index. Threads may search at once, each over a connection of its own."""

    def __init__(self, index: Path) -> None:
        self._index = index
        self._of_thread = threading.local()
        (self.num_passages,) = self._query_rows("SELECT value FROM about WHERE key = 'passages'", ())[0]
        self._num_with = lru_cache(maxsize=100_000)(self._count_passages)

    def search(self, query: str, topk: int) -> list[Passage]:
        """The passages that fit a query best, best first; none where it has no word of the corpus.

        Every passage found holds one of the query's rarest words: as many of these as MAX_SCORED leaves, at least
        one. The others add to the scores. Passages that hold words of both come before those that do not.
        """
        rare, common = self._split_words(query)
        if not rare:
            return []
        found = self._find_passages(f"({_any_of(rare)}) AND ({_any_of(common)})", topk) if common else []
        if len(found) < topk:
            seen = {passage.id for passage in found}
            found += [passage for passage in self._find_passages(_any_of(rare), topk) if passage.id not in seen]
        return found[:topk]

    def _split_words(self, query: str) -> tuple[list[str], list[str]]:
        """The words that passages must have one of, and those that add to scores."""
        counted = sorted((self._num_with(word), word) for word in dict.fromkeys(_WORD.findall(query.lower())))
        rare: list[str] = []
        common: list[str] = []
        num_scored = 0
        for num_passages, word in counted:
            num_scored += num_passages
            if num_passages and (not rare or num_scored <= MAX_SCORED):
                rare.append(word)
            elif 0 < num_passages <= max(MAX_COUNTED, self.num_passages // 20):
                common.append(word)
        return rare, common

    def _find_passages(self, expression: str, topk: int) -> list[Passage]:
        return [Passage(*row) for row in self._query_rows(_SEARCH, (expression, topk))]

    def _count_passages(self, word: str) -> int:
        (row,) = self._query_rows("SELECT count(*) FROM passages WHERE passages MATCH ?", (f'"{word}"',))
        return int(row[0])

    def _query_rows(self, sql: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        connection = getattr(self._of_thread, "connection", None)
        if connection is None:
            connection = sqlite3.connect(f"{self._index.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
            connection.execute(f"PRAGMA mmap_size = {_MMAP_BYTES}")
            self._of_thread.connection = connection
        return list(connection.execute(sql, values))


def _any_of(words: Sequence[str]) -> str:
    return " OR ".join(f'"{word}"' for word in words)


def open_corpus(corpus: Path) -> Corpus:
    """The corpus with its index, built now where there is none or the corpus has changed since.

    Args:
        corpus: a file of rows with `id` and `contents`, in any of the formats that datasets may have.

    Raises:
        SpecError: a row without `contents`, or a file that is none.
        RlfError: the folder of the corpus cannot be written to.
    """
    shown = shown_name(str(corpus))
    if corpus.suffix not in READERS or not corpus.is_file():
        raise fail(Place(shown), "", f"this is not a corpus; expected a file that ends in {', '.join(READERS)}.")
    index = corpus.with_name(corpus.name + _SUFFIX)
    if _identity_in(index) != _identity_of(corpus):
        _build_index(corpus, shown, index)
    return Corpus(index)


def _identity_of(corpus: Path) -> str:
    about = corpus.stat()
    return f"{_FORMAT} {about.st_size} {about.st_mtime_ns}"


def _identity_in(index: Path) -> str | None:
    """The identity of the corpus that an index was built from; None for one that is not there or is not whole."""
    if not index.is_file():
        return None
    connection = sqlite3.connect(f"{index.absolute().as_uri()}?mode=ro", uri=True)
    try:
        row = connection.execute("SELECT value FROM about WHERE key = 'corpus'").fetchone()
        return None if row is None else str(row[0])
    except sqlite3.DatabaseError:
        return None
    finally:
        connection.close()


def _build_index(corpus: Path, shown: str, index: Path) -> None:
    """Writes the index under another name first, so that one that is there is whole."""
    logger.info("indexing %s", shown)
    part = index.with_name(index.name + ".part")
    try:
        part.unlink(missing_ok=True)
        connection = sqlite3.connect(part, isolation_level=None)
    except (OSError, sqlite3.OperationalError) as error:
        raise RlfError(
            f"{part}: cannot be written: {error}. Put the corpus into a folder that is writable, for its index."
        ) from error
    try:
        for setting in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{_BUILD_CACHE_KIB}"):
            connection.execute(f"PRAGMA {setting}")
        connection.execute("BEGIN")
        connection.execute(_TABLE)
        connection.execute("CREATE TABLE about (key TEXT PRIMARY KEY, value)")
        connection.executemany("INSERT INTO passages (id, contents) VALUES (?, ?)", _read_passages(corpus, shown))
        connection.execute("INSERT INTO passages (passages) VALUES ('optimize')")
        connection.execute("INSERT INTO about SELECT 'passages', count(*) FROM passages")
        connection.execute("INSERT INTO about VALUES ('corpus', ?)", (_identity_of(corpus),))
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        part.unlink(missing_ok=True)
        raise
    connection.close()
    part.replace(index)
    logger.info("indexed %s", shown)


def _read_passages(corpus: Path, shown: str) -> Iterator[tuple[str, str]]:
    for number, row in enumerate(READERS[corpus.suffix](corpus, shown)):
        yield str(row.values.get("id", number)), _contents(row)


def _contents(row: Row) -> str:
    contents = row.values.get("contents")
    if not isinstance(contents, str):
        keys = ", ".join(row.values)
        message = f"got no text; a passage has `id` and `contents`, and this one {keys}. Rename the key with the text."
        raise fail(row.place, "contents", message)
    return contents.encode(errors="replace").decode()  # a lone surrogate is no text for SQLite


_MAX_BODY_BYTES = 4_000_000


class RetrieveRequest(BaseModel):
    """The body of `/retrieve`, as Search-R1's clients write it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    queries: tuple[Annotated[str, Field(max_length=20_000)], ...] = Field(max_length=4_096)
    topk: int = Field(3, ge=1, le=1_000)
    """Passages for each query."""
    return_scores: bool = False
    """Whether each passage comes as {document, score}."""


def search_app(corpus: Corpus, threads: ThreadPoolExecutor, *hosts: str) -> web.Application:
    """`POST /retrieve` and `GET /health`, for visitors that come by one of the hosts' names or by an address."""

    async def retrieve(request: web.Request) -> web.Response:
        try:
            asked = RetrieveRequest.model_validate_json(await request.read())
        except ValidationError as error:
            faults = [": ".join((*map(str, fault["loc"]), fault["msg"])) for fault in error.errors()]
            return web.json_response({"error": faults}, status=422)
        loop = asyncio.get_running_loop()
        found = await asyncio.gather(
            *(loop.run_in_executor(threads, corpus.search, query, asked.topk) for query in asked.queries)
        )
        return web.json_response(
            {"result": [[_show_passage(one, asked.return_scores) for one in of_one] for of_one in found]}
        )

    async def health(request: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "passages": corpus.num_passages})

    app = web.Application(client_max_size=_MAX_BODY_BYTES, middlewares=[guard_visitors(*hosts)])
    app.add_routes([web.post("/retrieve", retrieve), web.get("/health", health)])
    return app


def _show_passage(passage: Passage, with_score: bool) -> dict[str, Any]:
    document = {"id": passage.id, "contents": passage.contents}
    return {"document": document, "score": passage.score} if with_score else document


async def serve_search(corpus: Path, host: str, port: int, tell: Callable[[str], None]) -> None:
    """Serves until SIGINT or SIGTERM; an index is built first where there is none.

    Args:
        tell: called with a line for the user at the start of a build and once the corpus is served.

    Raises:
        SpecError, RlfError: the corpus is none, or the port is in use.
    """
    with listening(host, port) as listener, ThreadPoolExecutor(usable_cores(), "rlf-search") as threads:
        tell(f"opening {corpus}; the first time, an index is built beside it")
        opened = await asyncio.to_thread(open_corpus, corpus)
        app = search_app(opened, threads, host)
        await serve_app(app, listener, lambda url: tell(f"{opened.num_passages:,} passages at {url}/retrieve"))
