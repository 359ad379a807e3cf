"""A conversation keeps every token that was sampled, runs the tools, takes back, scores, and is kept in the lineage."""

import asyncio
import fcntl
import os
import pty
import re
import select
import sys
import termios
import threading
import time
from concurrent.futures import CancelledError
from contextlib import closing, contextmanager, suppress

import pytest
from typer.testing import CliRunner

from rlf.apps.chat.session import ChatSession, save
from rlf.apps.chat.speakers import CallEnd, CallStart, Correction, TextPiece, visible_part
from rlf.apps.serve.generation import _Choice as Choice
from rlf.cli.main import app
from rlf.core import RlfError
from rlf.endpoints.openai import Completion
from rlf.endpoints.pool import EndpointPool
from rlf.endpoints.spec import Usage
from rlf.engines.local.host import PolicyHost
from rlf.runs.place import open_reader
from rlf.runs.targets import endpoint_of, open_target

from ..apps.serve.served import serving_model
from ..processes import Process, call_rlf
from .conftest import ROOT
from .test_evaluations import a_choice, a_server, searching

SEARCH = ROOT / "specs" / "search.yaml"
QUESTION = "On which river does Sovtol lie?"


@contextmanager
def talking(name, files=(SEARCH,), runs=ROOT / "none", **keys):
    """A session, its target, and what is shown."""
    shown = []
    endpoint = keys.pop("endpoint", None)
    with (
        open_target(name, files, runs_folder=runs, endpoint=endpoint, needs_data=False) as target,
        ChatSession(target, shown.append, lambda level, text: None, **keys) as session,
    ):
        yield session, target, shown


@contextmanager
def serving_a_model():
    """The URL of the built-in model, served on a thread."""
    loop, opened, stop = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    urls = []

    async def serve():
        async with serving_model() as url:
            urls.append(url)
            opened.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert opened.wait(60)
    try:
        yield urls[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def test_words_calls_and_results_are_shown_as_they_come():
    with talking("builtin:tiny", greedy=True) as (session, _, shown):
        trajectory = session.run(session.conversation.say(QUESTION))
    kinds = [type(item) for item in shown]
    assert kinds.index(CallStart) < kinds.index(CallEnd) < len(kinds) - 1 - kinds[::-1].index(TextPiece)
    assert "".join(item.text for item in shown if isinstance(item, TextPiece)) == trajectory.answer
    assert "Sovtol" in next(item.record.result.text for item in shown if isinstance(item, CallEnd))


def test_a_next_message_extends_the_tokens_as_they_were_sampled():
    with talking("builtin:tiny", greedy=True) as (session, _, _shown):
        first = session.run(session.conversation.say(QUESTION))
        second = session.run(session.conversation.say(QUESTION))
    assert list(second.tokens[: len(first.tokens)]) == list(first.tokens)
    assert sum(second.action_mask) > sum(first.action_mask)
    assert second.action_mask[: len(first.tokens)] == list(first.action_mask)
    assert len(second.turns) > len(first.turns) and second.turns[: len(first.turns) - 1] == first.turns[:-1]


def test_what_is_taken_back_was_never_said_and_another_seed_says_it_otherwise():
    with talking("builtin:tiny") as (session, _, _shown):
        talk = session.conversation
        first = session.run(talk.say(QUESTION))
        answers = {session.run(talk.retry()).turns[0].text for _ in range(8)}
        assert len(answers) > 1
        session.run(talk.say("Who?"))
        talk.undo()
        assert len(talk.trajectory.task.messages) == 1
        assert talk.undo().content == QUESTION and talk.trajectory is None
        with pytest.raises(RlfError, match="the conversation is still empty"):
            talk.undo()
        assert first.task.messages[0].content == QUESTION


def test_a_conversation_is_scored_and_kept_where_trace_shows_it(tmp_path):
    runs = tmp_path / "runs"
    with talking("builtin:tiny", greedy=True) as (session, target, _shown):
        trajectory = session.run(session.conversation.say(QUESTION))
        scored = session.run(session.conversation.score(trajectory.answer))
        assert scored.reward == 1.0
        without = session.run(session.conversation.score(None))
        assert without.reward is None and "no gold" in without.scores[0].reason
        run_id = save(scored, target, runs, ["rlf", "chat"])
    with open_reader(runs) as reader:
        stored = reader.trajectory(run_id, k=0, phase="chat").scored.trajectory
    assert list(stored.tokens) == list(trajectory.tokens)
    shown = CliRunner().invoke(app, ["trace", run_id, "0", "--phase", "chat", "--runs", str(runs)])
    assert shown.exit_code == 0 and "Sovtol" in shown.output
    again = CliRunner().invoke(app, ["eval", run_id, "--runs", str(runs)])
    assert again.exit_code == 2 and "saved chat" in again.output


def test_a_system_message_begins_anew():
    with talking("builtin:tiny", greedy=True) as (session, _, _shown):
        session.run(session.conversation.say(QUESTION))
        session.conversation.begin("Be brief.")
        trajectory = session.run(session.conversation.say(QUESTION))
    assert [message.role for message in trajectory.task.messages] == ["system", "user"]


def test_a_full_conversation_says_so_and_stays_as_it_was():
    with talking("builtin:tiny", greedy=True) as (session, _, _shown):
        first = session.run(session.conversation.say(QUESTION))
        with pytest.raises(RlfError, match="the conversation is full"):
            session.run(session.conversation.say("river " * 2000))
        assert session.conversation.trajectory is first
        session.run(session.conversation.say(QUESTION))


def test_a_model_behind_a_server_keeps_the_conversation(tmp_path):
    with (
        a_server(searching) as (url, bodies),
        talking(None, endpoint=endpoint_of(url, "big")) as (session, target, shown),
    ):
        session.run(session.conversation.say(QUESTION))
        trajectory = session.run(session.conversation.say("Penrox lies on which river?"))
        run_id = save(session.run(session.conversation.score(None)), target, tmp_path / "runs", ["rlf"])
    roles = [message["role"] for message in bodies[-1]["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant", "tool"]
    assert len(trajectory.turns) == 4 and not trajectory.tokens
    assert sum(isinstance(item, CallStart) for item in shown) == 2
    assert (
        CliRunner().invoke(app, ["trace", run_id, "0", "--phase", "chat", "--runs", str(tmp_path / "runs")]).exit_code
        == 0
    )


def test_what_a_model_behind_a_server_says_is_shown_as_it_comes(monkeypatch):
    # The server sends together what came meanwhile, so the next token waits until the last one is on its way.
    decode, take, taken = PolicyHost._decode, Choice.take, threading.Event()

    def decode_what_follows(self, joining):
        taken.wait(10)
        taken.clear()
        return decode(self, joining)

    def take_and_tell(self):
        yield from take(self)
        taken.set()

    monkeypatch.setattr(PolicyHost, "_decode", decode_what_follows)
    monkeypatch.setattr(Choice, "take", take_and_tell)
    taken.set()
    with serving_a_model() as url, talking(None, endpoint=endpoint_of(url, "tiny"), greedy=True) as (session, _, shown):
        session.conversation.system = "Say"
        trajectory = session.run(session.conversation.say("On which river does Sovtol lie?"))
    pieces = [item.text for item in shown if isinstance(item, TextPiece)]
    assert trajectory.answer and "".join(pieces).strip().endswith(trajectory.answer) and len(pieces) > 1
    assert sum(isinstance(item, CallStart) for item in shown) == sum(len(turn.calls) for turn in trajectory.turns)


def test_an_answer_that_was_cut_off_hides_nothing_of_the_next_one(monkeypatch):
    async def chat(pool, messages, caller, **_):
        caller.watch("One and")
        if messages[-1]["content"] == "Break off.":
            raise asyncio.CancelledError
        return Completion("One and two.", (), "stop", (), Usage(0, 0))

    with a_server(searching) as (url, _), talking(None, endpoint=endpoint_of(url, "big")) as (session, _, shown):
        monkeypatch.setattr(EndpointPool, "chat", chat)
        with pytest.raises(CancelledError):
            session.run(session.conversation.say("Break off."))
        shown.clear()
        session.run(session.conversation.say("Count."))
    assert [item.text for item in shown] == ["One and", " two."]


def test_a_failure_at_the_end_of_a_session_is_told(monkeypatch):
    async def fail(self):
        raise RlfError("a tool did not close")

    monkeypatch.setattr("rlf.apps.chat.session.Conversation.close", fail)
    with pytest.raises(RlfError, match="did not close"), talking("builtin:tiny"):
        pass


def test_what_is_no_call_that_can_be_run_is_shown_with_its_correction():
    def unreadable(messages):
        calls = [{"id": "c", "type": "function", "function": {"name": "search", "arguments": "{query"}}]
        text = '<tool_call>{"name": "search", "arguments": {</tool_call>'
        over = messages[-1]["content"] if len(messages) > 4 else None
        return 200, a_choice(**({"tool_calls": calls} if len(messages) == 1 else {"content": over or text}))

    with a_server(unreadable) as (url, _), talking(None, endpoint=endpoint_of(url, "big")) as (session, _, shown):
        session.run(session.conversation.say(QUESTION))
    corrected = [item for item in shown if isinstance(item, Correction)]
    assert (corrected[0].written, corrected[0].correction) == (
        "search({query)",
        "error: the arguments of search are no JSON object",
    )
    assert '"search"' in corrected[1].written and corrected[1].correction


PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108020000009077"
    "53de0000000c4944415408d763f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
)


def test_images_go_by_their_paths_to_models_that_see(tmp_path):
    (tmp_path / "pixel.png").write_bytes(PIXEL)

    def seeing(messages):
        return 200, a_choice(content=str([part["type"] for part in messages[-1]["content"]]))

    with a_server(seeing) as (url, _), talking(None, endpoint=endpoint_of(url, "big")) as (session, _, shown):
        trajectory = session.run(session.conversation.say("What is it?", [str(tmp_path / "pixel.png")]))
    assert trajectory.answer == "['image_url', 'text']" and isinstance(shown[-1], TextPiece)
    with talking("builtin:tiny") as (session, _, _shown), pytest.raises(RlfError, match="takes text only"):
        session.run(session.conversation.say("What is it?", [str(tmp_path / "pixel.png")]))


def test_every_command_of_a_conversation_answers(trained, tmp_path, monkeypatch):
    runs, run_id = trained
    lines = [
        "/help",
        "/tools",
        "/undo",
        "/nothing",
        "/image none.png",
        '/image "a',
        "\0",
        QUESTION,
        "/retry",
        "/reward Balzul",
        "/save",
    ]
    result = CliRunner().invoke(
        app, ["chat", run_id, "--runs", str(runs)], input="\n".join([*lines, "/quit", "x"]) + "\n"
    )
    assert result.exit_code == 0, result.output
    for words in (
        "/retry",
        "calculator",
        "the conversation is still empty",
        "there is no command /nothing",
        "none.png",
        "got '\"a', whose quotation mark is not closed. Write e.g. `/image photo.png`.",
        "reward",
        "saved:",
    ):
        assert words in result.output
    assert "> x" not in result.output


def call_on_terminal(name, *arguments):
    """The program in a session of its own, with a terminal in place of its streams."""
    os.setsid()
    terminal = os.open(name, os.O_RDWR)
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    for stream in range(3):
        os.dup2(terminal, stream)
    sys.stdin, sys.stdout, sys.stderr = (open(stream, mode, closefd=False) for stream, mode in enumerate("rww"))  # noqa: SIM115
    call_rlf(*arguments)


class Terminal:
    """The program on a terminal of its own."""

    def __init__(self, *arguments):
        self.own, self.theirs = pty.openpty()
        self.before = termios.tcgetattr(self.own)
        self.process = Process(
            call_on_terminal, os.ttyname(self.theirs), *arguments, env=os.environ | {"TERM": "xterm"}
        )
        self.text = ""

    def read_until(self, words, timeout_s=120.0):
        """Reads until the words were printed after what was waited for last."""
        ends = time.monotonic() + timeout_s
        while not (found := re.search(words, self.text)):
            ready, _, _ = select.select([self.own], [], [], max(0.0, ends - time.monotonic()))
            assert ready, f"{words!r} was not printed: {self.text!r}"
            self.text += os.read(self.own, 65536).decode(errors="replace")
        self.text = self.text[found.end() :]

    def write(self, text):
        os.write(self.own, text.encode())

    def interrupt_until(self, words):
        """Presses Ctrl-C until the words are printed: one that comes just before readline waits
        is seen with the next key only."""
        for _ in range(40):
            self.write("\x03")
            with suppress(AssertionError):
                return self.read_until(words, timeout_s=3)
        raise AssertionError(f"{words!r} was not printed: {self.text!r}")

    def close(self):
        """Ends the program, if it is still there."""
        with self.process:
            pass
        os.close(self.own)
        os.close(self.theirs)


@pytest.fixture
def terminal():
    with closing(
        Terminal(
            *("chat", "builtin:tiny", str(ROOT / "specs/search_no_tool.yaml")),
            *("eval.temperature=9", "rollout.max_total_tokens=1000"),
        )
    ) as opened:
        yield opened


def test_ctrl_c_stops_an_answer_and_twice_the_program_and_the_terminal_is_left_clean(terminal):
    terminal.read_until("> ")
    terminal.write("Who is it?\n")
    terminal.read_until("it\\?\r\n..........")  # the model has begun
    terminal.interrupt_until("Ctrl-C again")
    terminal.read_until("> ")
    terminal.write("/undo\n")
    terminal.read_until("the conversation is still empty")
    terminal.read_until("> ")
    terminal.interrupt_until("Ctrl-C again")
    terminal.interrupt_until("interrupted")
    assert terminal.process.wait(60) == 130
    assert termios.tcgetattr(terminal.own) == terminal.before


@pytest.mark.parametrize("text", ["<tool_ca", "<tool_call", "I see <tool_c", "It is so: <tool_call"])
def test_the_beginning_of_a_call_is_not_shown_as_words(text):
    assert visible_part(text, None, is_over=False) == text[: text.index("<")]
