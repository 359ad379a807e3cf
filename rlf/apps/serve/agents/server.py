"""The addresses of agents, and the player that starts one for each trajectory."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from aiohttp import web
from pydantic_core import to_json

from rlf.apps.serve import ServeSettings
from rlf.apps.serve.agent import Json
from rlf.apps.serve.agents.forward import ForwardedSession, setting_of
from rlf.apps.serve.agents.programs import AgentFault, AgentResult, AgentSession, AgentTask, open_program
from rlf.apps.serve.agents.session import RequestAttempt, Session
from rlf.apps.serve.agents.tools import BAD_PARAMS, as_spoken, read_rpc_call, show_result
from rlf.apps.serve.app import TOO_LARGE, Handler, Server, answering
from rlf.apps.serve.dialogue import Dialogue
from rlf.apps.serve.model import ServedModel
from rlf.apps.serve.openai import Chat
from rlf.apps.serve.requests import Refusal, Tools, body_object
from rlf.core.errors import CheckError
from rlf.core.redact import clean
from rlf.core.servers import listening
from rlf.rollout.by_text import TextPlayer
from rlf.rollout.loop import Setting
from rlf.rollout.rollout import Rollout, with_observation, world_cause
from rlf.spec.agent import AgentFailure, AgentSpec
from rlf.spec.models import ChatSpec
from rlf.types.events import Notice
from rlf.types.policy import Policy
from rlf.types.task import Task
from rlf.types.trajectory import StopReason, Trajectory
from rlf.types.world import WorldFailure

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlf.training.harness import Harness

logger = logging.getLogger(__name__)
_CHAT = ChatSpec()
_ENOUGH = 0.9
"""Share of continued calls below which a run warns."""
_RETRY = "x-stainless-retry-count"
"""The header by which the clients of OpenAI and Anthropic say that they repeat a request."""
_ATTEMPT: web.RequestKey[RequestAttempt] = web.RequestKey("attempt", RequestAttempt)


class AgentServer:
    """Plays the trajectories of a spec by its agent. Entered, it listens on this machine's own address alone."""

    def __init__(
        self,
        agent: AgentSpec,
        tokenizer: PreTrainedTokenizerBase,
        chat: ChatSpec = _CHAT,
        *,
        gold: frozenset[str] = frozenset(),
        max_concurrency: int = 256,
        redact: Callable[[str], str] = str,
    ) -> None:
        """Loads what there is to load.

        Args:
            gold: columns of rows that agents are not given.
            max_concurrency: trajectories at once.
            redact: strikes secrets out of what agents print.

        Raises:
            RlfError: its function cannot be imported, or the chat format fits no turns of the tokenizer.
        """
        self.agent = agent
        self.dialogue = Dialogue(tokenizer, chat.format, chat.thinking_tag)
        self.gold = gold
        self.room = asyncio.Semaphore(max_concurrency)
        """For trajectories under way: an agent's time begins when its place in the policy does."""
        self.redact = redact
        self._program = open_program(agent, redact)
        self._tokenizer = tokenizer
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        # Where many agents share one process, minutes may pass between a request's head and its body.
        settings = ServeSettings(name="policy", body_s=self.agent.timeout_s, request_s=self.agent.timeout_s)
        self._server = SessionServer(self._tokenizer, settings)
        await self._stack.enter_async_context(self._program)
        listener = listening(settings.host, 0)
        url = await self._stack.enter_async_context(answering(self._server, listener, *self._program.listeners))
        self._root = url.removesuffix("/v1")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def player(self, setting: Setting, *, overrides: bool) -> AgentPlayer:
        """What plays a collection."""
        return AgentPlayer(self, setting, overrides=overrides)

    def forwarding(self, player: TextPlayer) -> AgentPlayer:
        """What plays a collection with the model behind an endpoint."""
        chat = self.dialogue.chat(Tools())
        assert chat is not None, "a stand-in without a chat format"
        return AgentPlayer(self, setting_of(player, chat), overrides=False, asks=player)

    async def certify(self, harness: Harness, policy: Policy, tasks: Sequence[Task], seed: int) -> Notice:
        """Plays tasks, and says how their calls hang together. Raises CheckError below `least_continued`."""
        from rlf.apps.serve.agents.certify import play_certificate

        found, least = await play_certificate(harness, policy, tasks, seed), self.agent.least_continued
        level = "info" if found.holds(_ENOUGH if least is None else least) else "warning"
        text = "; ".join((found.summary, *found.cures))
        # An agent that is down is waited for as in any step.
        if least is not None and found.error is None and not found.holds(least):
            raise CheckError(f"rollout.agent.least_continued: got {least:g}; {text}")
        return Notice(level, text, {"agent": found.to_json()})

    def open(
        self, rollout: Rollout, setting: Setting, asks: TextPlayer | None, *, overrides: bool
    ) -> tuple[Session, AgentSession]:
        """A session for a trajectory, with its address. Args: asks: what asks an endpoint; None: the policy samples."""
        key = secrets.token_urlsafe(24)
        own = key, rollout, setting, self.agent, self.dialogue
        session = Session(*own, overrides=overrides) if asks is None else ForwardedSession(*own, asks=asks)
        name = hashlib.blake2b(rollout.id.encode(), digest_size=8).hexdigest() + secrets.token_hex(4)
        self._server.sessions[name] = session
        return session, AgentSession(f"{self._root}/s/{name}/v1", key, partial(self._server.chat, name))

    async def run(self, task: AgentTask, address: AgentSession, session: Session) -> AgentResult:
        """Runs the program until it is over, its time is, or the trajectory is. Raises AgentFault."""
        playing = asyncio.ensure_future(self._program.run(task, address))
        over = asyncio.ensure_future(session.over.wait())
        try:
            await asyncio.wait((playing, over), timeout=self.agent.timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if playing.done():
                return playing.result()
            if session.is_broken:
                raise AgentFault(AgentFailure.BREAK, "a prompt continued no earlier call")
            if session.over.is_set():
                return AgentResult(None)
            raise AgentFault(AgentFailure.TIMEOUT, f"it was not over after {self.agent.timeout_s:g} s")
        finally:
            over.cancel()
            playing.cancel()
            # Not awaited without a limit: code of others may swallow its cancellation.
            await asyncio.wait((playing, over), timeout=self._program.end_s)
            if not playing.done():
                logger.warning("the agent of trajectory %s was cancelled and still runs", session.rollout.id)

    async def close(self, address: AgentSession, session: Session) -> None:
        """Ends a session. Its address stays known: a late request is answered as such."""
        await session.close()
        self._server.forget(address.url)


class SessionServer(Server):
    """Answers each session's own agent."""

    prefix: ClassVar[str] = "/s/{session}"

    def __init__(self, tokenizer: PreTrainedTokenizerBase, settings: ServeSettings) -> None:
        super().__init__(tokenizer, settings)
        self.sessions: dict[str, Session] = {}
        self._ended: dict[str, str] = {}
        self._loop = asyncio.get_running_loop()

    def forget(self, url: str) -> None:
        """Keeps no more of a session than its key."""
        name = url.rsplit("/", 2)[1]
        self._ended[name] = self.sessions.pop(name).key
        if len(self._ended) > _MOST_ENDED:
            del self._ended[next(iter(self._ended))]

    def find_key(self, request: web.Request) -> str | None:
        """The session's own; None where there is no such path, as its answer says."""
        if request.match_info.http_exception is not None:
            return None
        name = request.match_info["session"]
        if name in self._ended:
            return self._ended[name]
        return self._find_session(name).key

    def find_model(self, request: web.Request, body: bytes = b"") -> ServedModel:
        """The policy as the session's request meets it. Raises Refusal where the session is over."""
        session = self._find_session(request.match_info["session"])
        attempt = RequestAttempt(0)  # what asks for no answer is none
        if body:
            attempt = session.attempt(request.path, body, is_retry=request.headers.get(_RETRY, "0") != "0")
            request[_ATTEMPT] = attempt
        return session.model(self._settings, self._metrics, attempt)

    async def chat(self, name: str, body: Mapping[str, Any]) -> Json:
        """Answers a request of a session's own agent in this process, as one over HTTP. Raises Refusal."""
        try:
            return await self._chat(name, body)
        except Refusal:
            await asyncio.sleep(0)  # an agent that asks for ever lets others run, and its deadline come
            raise

    async def _chat(self, name: str, body: Mapping[str, Any]) -> Json:
        if asyncio.get_running_loop() is not self._loop:
            words = "chat is awaited in another event loop than the agent's `run`; ask `session.url` from there"
            raise Refusal(400, words)
        try:
            # Bytes and back take microseconds: what is kept is JSON alone, and nothing of it the agent's to change.
            data = to_json({"model": self._settings.name, **body})
        except ValueError as error:
            raise Refusal(400, f"the body cannot be written as JSON: {error}") from error
        if len(data) > self._settings.max_body_bytes:
            raise Refusal(413, TOO_LARGE)
        session = self._find_session(name)
        asked = Chat.read(body_object(data), strict=False, note=self.note_ignored)
        if asked.stream:
            raise Refusal(400, "stream: in rlf's own process an answer is whole. Leave the key out.", key="stream")
        attempt = session.attempt("chat", data, is_retry=False)
        model = session.model(self._settings, self._metrics, attempt)
        try:
            with model.gate.enter(asked.num_answers):
                return await self.answer_whole(asked, model)
        except asyncio.CancelledError:
            attempt.is_lost = True
            raise
        except Refusal:
            raise
        except Exception as defect:
            logger.exception("a defect of rlf, met by a call of trajectory %s", session.rollout.id)
            raise Refusal(500, "the server failed; its log has the cause") from defect

    def app(self) -> web.Application:
        """The application."""
        app = super().app()
        app.router.add_post(self.prefix + "/v1/reward", self._take_scores)
        app.router.add_post(self.prefix + "/mcp", self._answer_mcp)
        app.middlewares.append(self._note_lost)
        return app

    @web.middleware
    async def _note_lost(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Notes a request whose connection ended before its answer was sent: the same request again repeats it."""
        try:
            return await handler(request)
        except (ConnectionError, asyncio.CancelledError):
            if (attempt := request.get(_ATTEMPT)) is not None:
                attempt.is_lost = True
            raise

    async def _take_scores(self, request: web.Request) -> web.Response:
        """`POST /v1/reward` with numbers by name: scores that terms of `kind: env` read."""
        session = self._find_session(request.match_info["session"])
        body = body_object(await request.read())
        for name, value in body.items():
            if not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
                raise Refusal(400, f"{name:.40}: got {value!r:.40}; expected a finite number", key=name)
        session.scores |= {name: float(value) for name, value in body.items()}
        return web.json_response({})

    async def _answer_mcp(self, request: web.Request) -> web.Response:
        """MCP's streamable HTTP, one message a request and one answer each: tools need no more."""
        session = self._find_session(request.match_info["session"])
        body = body_object(await request.read())
        method, params, number = str(body.get("method")), body.get("params") or {}, body.get("id")
        if number is None:
            return web.Response(status=202)  # a notification
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": number}
        try:
            if not isinstance(params, dict):
                raise Refusal(BAD_PARAMS, "params: expected an object")
            if method == "tools/call":
                answer["result"] = show_result(await session.call_tool(read_rpc_call(params)))
            else:
                answer["result"] = session.tools.answer(method, params)
        except Refusal as refused:
            if refused.status > 0:  # of HTTP
                raise
            answer["error"] = {"code": refused.status, "message": str(refused)}
        return web.json_response(answer)

    def _find_session(self, name: str) -> Session:
        if name in self._ended:
            raise Refusal(403, "the trajectory is over", code="over")
        session = self.sessions.get(name)
        if session is None:
            raise Refusal(404, "there is no such session", code="no_session")
        return session


_MOST_ENDED = 10_000
"""Sessions whose end is remembered."""


class AgentPlayer:
    """Plays trajectories, each by an agent of its own."""

    def __init__(
        self, server: AgentServer, setting: Setting, *, overrides: bool, asks: TextPlayer | None = None
    ) -> None:
        self._server = server
        self._asks = asks
        self._setting = setting
        self._overrides = overrides

    def open(self, trajectory_ids: Sequence[str]) -> None:
        """Announces trajectories to the policy in their logical order."""
        self._setting.open(trajectory_ids)

    def release(self, trajectory_id: str) -> None:
        """Ends a trajectory. Safe to call twice."""
        self._setting.release(trajectory_id)

    async def play(self, rollout: Rollout, *, cut_off: Callable[[Trajectory], None] | None = None) -> Trajectory:
        """Plays one trajectory to its end."""
        async with self._server.room:
            session, address = self._server.open(rollout, self._setting, self._asks, overrides=self._overrides)
            try:
                return await self._play(rollout, session, address)
            except asyncio.CancelledError:
                if cut_off is not None and session.tree.calls:
                    cut_off(session.trajectory(StopReason.CANCELLED, None, None))
                raise
            finally:
                # What is sampled for it ends before its place in the policy is another's.
                try:
                    await self._server.close(address, session)
                finally:
                    self.release(rollout.id)
                    await session.tools.close()

    async def _play(self, rollout: Rollout, session: Session, address: AgentSession) -> Trajectory:
        failure, words, result, world = None, None, AgentResult(None), session.tools.world
        try:
            # Before the agent's time begins: the wait for a world is as long as others play.
            said = None if world is None else await world.reset()
        except WorldFailure as fault:
            return session.trajectory(StopReason.INFRA_FAILURE, None, world_cause(fault))
        task = replace(rollout.task, messages=with_observation(rollout.task.messages, said))
        try:
            result = await self._server.run(AgentTask.of(task, self._server.gold), address, session)
        except AgentFault as fault:
            words = self._server.redact(clean(str(fault))).replace(session.key, "***")
            failure, result = fault.failure, AgentResult(None, fault.output)
        if session.fault is not None:
            raise session.fault
        if failure is None and not session.tree.calls:
            failure, words = (
                AgentFailure.NO_CALL,
                "it ended without a call of the model, or caught its client's errors",
            )
        session.over.set()
        await session.close()
        session.step_world()
        stop, answer = session.ending(failure, result.answer)
        broken = session.tools.broken or session.broken or (None if failure is None else failure.cause(words or ""))
        if failure is not None:
            session.counts[f"failed: {failure}"] += 1
        if world is not None and stop is not StopReason.INFRA_FAILURE:
            self.release(rollout.id)  # nothing more is sampled, and a score may take as long as a judge does
            try:
                if answer is not None and failure is None:
                    await session.tools.hear(answer)  # the last words
                    session.step_world()
                await world.score(tuple(as_spoken(session.tree.write()[1])))
            except WorldFailure as fault:
                stop, broken = StopReason.INFRA_FAILURE, world_cause(fault)
        return session.trajectory(stop, answer, broken if stop is StopReason.INFRA_FAILURE else None, result.output)
