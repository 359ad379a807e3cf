"""The judges of a term: each model a pool of endpoints, asked for its votes unless its reply is known."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import sqlite3
import sys
import tempfile
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import IO, TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from rlf.apps.judges.prompts import UnreadableReply
from rlf.apps.judges.settings import Cache, Judging, Serve
from rlf.builtin.names import BUILTIN
from rlf.core.errors import OutageError, RlfError, RunError
from rlf.core.files import use_wal
from rlf.core.identity import derive_seed
from rlf.core.meter import Meter
from rlf.endpoints.openai import TokenLogprob, json_schema_format
from rlf.endpoints.spec import EndpointFailure, EndpointSpec, SamplingSpec
from rlf.processes.child import supervised
from rlf.types import Outcome, ScoreUsage

if TYPE_CHECKING:
    from rlf.endpoints.pool import EndpointPool
    from rlf.rewards.term import RewardContext

# Replies that judges gave before: in memory, and in a file where one is named.

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


_TOP_LOGPROBS = 20
"""The most that servers of the protocol give."""
_MAX_SEED = 2**31

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reply:
    """A judge's reply."""

    text: str
    logprobs: tuple[TokenLogprob, ...]
    usage: ScoreUsage


@dataclass(frozen=True, slots=True)
class NoReply:
    """Why a judge gave no reply, and what asking it cost all the same."""

    reason: str
    usage: ScoreUsage


@dataclass(frozen=True, slots=True)
class Question:
    """One request to a judge."""

    messages: Sequence[Mapping[str, Any]]
    schema: Mapping[str, Any] | None
    """JSON Schema that the server holds the reply to."""
    with_logprobs: bool


@dataclass(frozen=True, slots=True)
class Votes(Generic[T]):
    """The result of the readable replies, and the failures of the others."""

    values: Sequence[T]
    failures: Sequence[str]
    usage: ScoreUsage

    @property
    def are_enough(self) -> bool:
        """Whether more than half of the replies could be read."""
        return len(self.values) > len(self.failures)


Asker = Callable[[int], Question]
"""The question for a vote, by its number."""


class Panel:
    """Judges that are connected."""

    def __init__(self, judging: Judging, judges: Mapping[str, Sequence[EndpointSpec]], context: RewardContext) -> None:
        """Takes whom to ask; the endpoints of a served judge are none of the term's."""
        self._judging, self._judges, self._context = judging, judges, context
        self._pools: dict[str, EndpointPool] = {}
        self._cache = None if judging.cache is None else ReplyCache(judging.cache)
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._stack = AsyncExitStack()

    async def open(self) -> None:
        """Looks whether each judge answers. Raises RlfError for one that does not."""
        from rlf.endpoints.pool import open_pool

        async with AsyncExitStack() as stack:
            if self._cache is not None:
                stack.callback(self._cache.close)
            for model, endpoints in self._judges.items():
                self._pools[model] = await open_pool(endpoints)
                stack.push_async_callback(self._pools[model].close)
            self._stack = stack.pop_all()

    async def close(self) -> None:
        """Closes connections and cache."""
        await self._stack.aclose()

    async def vote(self, asker: Asker, read: Callable[[Reply, int], T], *, fresh: bool = False) -> Votes[T]:
        """Every judge's votes, all asked at once.

        Args:
            asker: makes the question of a vote; those of a group differ from vote to vote.
            read: makes a value of a reply to the question of that number, or raises Unreadable.
            fresh: whether judges are asked even where a reply is known.
        """
        questions = [asker(number) for number in range(self._judging.votes)]
        asked = [(model, number) for model in self._pools for number in range(len(questions))]
        replies = await asyncio.gather(
            *(self._find_reply(model, questions[number], number, fresh=fresh) for model, number in asked)
        )
        values, failures, usage = list[T](), list[str](), ScoreUsage()
        for (_, number), reply in zip(asked, replies, strict=True):
            try:
                usage += reply.usage
                if isinstance(reply, NoReply):
                    raise UnreadableReply(reply.reason)
                values.append(read(reply, number))
            except UnreadableReply as fault:
                failures.append(str(fault))
        return Votes(values, failures, usage)

    async def _find_reply(self, model: str, question: Question, number: int, *, fresh: bool) -> Reply | NoReply:
        sampling = self._seed_sampling(model, question, number)
        if self._cache is None or fresh:
            return await self._ask_model(model, question, sampling)
        # Replies of a served judge, whose address is another each time, are kept under none.
        urls = sorted(endpoint.url for endpoint in self._judging.endpoints if endpoint.model == model)
        key = key_of(
            {"model": model, "urls": urls, "sampling": sampling.body(), "vote": number, "question": asdict(question)}
        )
        async with self._asking.setdefault(key, asyncio.Lock()):  # who asks the same waits for the one reply
            known = await self._cache.get(key)
            if known is not None:
                return Reply(*known, ScoreUsage(num_replies=1, num_cached=1))
            reply = await self._ask_model(model, question, sampling)
            if isinstance(reply, Reply):
                await self._cache.put(key, reply.text, reply.logprobs)
            return reply

    def _seed_sampling(self, model: str, question: Question, number: int) -> SamplingSpec:
        """The sampling with a seed where tokens are drawn, which differs from vote to vote."""
        declared = self._judging.sampling
        if declared.seed is not None:
            return declared.model_copy(update={"seed": declared.seed + number})
        if declared.temperature == 0:
            return declared
        prompt = json.dumps(question.messages, sort_keys=True)
        seed = derive_seed(self._context.seed, "judge", model, prompt, number) % _MAX_SEED
        return declared.model_copy(update={"seed": seed})

    async def _ask_model(self, model: str, question: Question, sampling: SamplingSpec) -> Reply | NoReply:
        from rlf.endpoints.pool import Caller

        meter = Meter(self._context.meter)
        try:
            completion = await self._pools[model].chat(
                question.messages,
                Caller(self._judging.timeout_s, meter),
                sampling=sampling,
                response_format=None if question.schema is None else json_schema_format("verdict", question.schema),
                top_logprobs=_TOP_LOGPROBS if question.with_logprobs else None,
            )
        except EndpointFailure as failure:
            if failure.outcome is Outcome.GONE:
                raise OutageError(f"judge {model}: {failure.text}.") from failure
            return NoReply(f"{failure.outcome}: {failure.text}", _read_usage(meter, num_replies=0))
        return Reply(completion.text, completion.logprobs, _read_usage(meter, num_replies=1))


def _read_usage(meter: Meter, num_replies: int) -> ScoreUsage:
    """The cost of asking, failed and repeated requests included."""
    spent = meter.usage
    return ScoreUsage(
        num_replies=num_replies,
        num_tokens=int(spent.get("prompt_tokens", 0) + spent.get("completion_tokens", 0)),
        cost_usd=meter.cost_usd,
        num_requests=int(spent.get("requests", 0)),
    )


# A judge that is served while its term is open: `rlf serve` as a process, which ends with it.

_PATIENT = ("--strict", "--max-concurrency", "32", "--max-queue", "1000000", "--request-s", "86400")
"""Of a server that answers judges alone: who asks has limits of its own."""
_MAX_LOG_CHARS = 1_000


@asynccontextmanager
async def served(serve: Serve) -> AsyncIterator[Mapping[str, Sequence[EndpointSpec]]]:
    """The endpoint of a judge by its model: a server that lives as long as the context.

    Raises:
        RunError: the server does not start.
    """
    started = perf_counter()
    logger.info("judge server of %s begins", serve.model)
    # It listens on this machine alone, for this process: the key of a user's own `rlf serve` is none of its own.
    environment = {name: value for name, value in os.environ.items() if name != "RLF_API_KEY"}
    if serve.model.startswith(BUILTIN):
        environment["OMP_NUM_THREADS"] = "1"  # of a model this small, threads only wait for each other
    with tempfile.TemporaryFile() as log:
        command = [sys.executable, "-m", "rlf", "serve", serve.model, "--port", "0", "--json", *_PATIENT]
        try:
            async with supervised(command, stdout=asyncio.subprocess.PIPE, stderr=log, env=environment) as process:
                url = await _read_url(process, serve, log)
                logger.info("judge server of %s is ready after %.1f s: %s", serve.model, perf_counter() - started, url)
                yield {serve.model: [EndpointSpec(url=url, model=serve.model)]}
        finally:
            logger.info("judge server of %s done: %.1f s", serve.model, perf_counter() - started)


async def _read_url(process: asyncio.subprocess.Process, serve: Serve, log: IO[bytes]) -> str:
    """The address that the first line of output holds, once the server answers."""
    assert process.stdout is not None, "stdout is a pipe"
    try:
        async with asyncio.timeout(serve.start_s):
            line = await process.stdout.readline()
        return str(json.loads(line)["data"]["url"])
    except (TimeoutError, ValueError, KeyError, TypeError) as fault:
        log.seek(0)
        last_output = log.read().decode("utf-8", "replace").strip()[-_MAX_LOG_CHARS:] or "it printed nothing"
        raise RunError(f"serve: the judge {serve.model} cannot be served: {last_output}") from fault
