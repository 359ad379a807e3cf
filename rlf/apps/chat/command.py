"""`rlf chat`: a conversation with a model on the terminal, its tools running."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from rlf.cli.arguments import (
    DEFAULT_RUNS,
    TARGET,
    ApiKeyVariable,
    EndpointUrl,
    RequestTime,
    RunsFolder,
    ServedName,
    TargetChanges,
    runs_option,
    split_arguments,
)
from rlf.cli.output import facts_table, stdout_console
from rlf.core.errors import RlfError
from rlf.core.redact import clean
from rlf.reports.sheets import counted, visible

if TYPE_CHECKING:
    from rlf.apps.chat.session import ChatSession
    from rlf.apps.chat.speakers import Shown
    from rlf.runs.targets import Target
    from rlf.types import Scored, Trajectory

_MAX_RESULT_CHARS = 400
_HELP = {
    "/undo": "remove your last message and its answer",
    "/retry": "answer again with another seed",
    "/tools": "the tools that the model may call",
    "/system TEXT": "start over with a system message; without TEXT with none",
    "/image PATH": "show an image with your next message",
    "/reward [GOLD]": "score the conversation by the spec; GOLD: the right answer",
    "/save": "keep the conversation in the lineage",
    "/quit": "end",
}


def chat(
    target: Annotated[str | None, TARGET] = None,
    arguments: TargetChanges = None,
    endpoint: EndpointUrl = None,
    model: ServedName = None,
    api_key_env: ApiKeyVariable = None,
    timeout: RequestTime = 120.0,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always take the most likely token.")] = False,
    temperature: Annotated[
        float | None, typer.Option("--temperature", min=0.0, help="Of the answers.", show_default="the spec's")
    ] = None,
    runs_folder: RunsFolder = DEFAULT_RUNS,
) -> None:
    """Talk to a model with the tools that it was trained with. Ctrl-C stops an answer; twice, or /quit, ends."""
    from rlf.apps.chat.session import ChatSession
    from rlf.runs.targets import NO_TARGET, endpoint_of, open_target

    words = [*([target] if target is not None and endpoint is not None else []), *(arguments or [])]
    files, overrides = split_arguments(words, need_file=False)
    served = endpoint_of(endpoint, model, api_key_env, timeout)
    if target is None and served is None:
        raise RlfError(NO_TARGET)
    if temperature is not None and temperature > 0:
        overrides.append(f"eval.temperature={temperature}")
    name = target if served is None else None
    with open_target(name, files, overrides, runs_folder=runs_folder, endpoint=served, needs_data=False) as found:
        screen = _Screen(stdout_console())
        with ChatSession(found, screen.show, screen.notify, greedy=greedy or temperature == 0.0) as session:
            _Terminal(session, found, screen, runs_folder).talk()


class _Screen:
    """Prints while the model answers."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._is_inside = False
        """Whether a line of the model's is not ended yet."""

    def show(self, shown: Shown) -> None:
        """Prints more words, a call, or its result."""
        from rlf.apps.chat.speakers import CallEnd, CallStart, Correction, TextPiece

        match shown:
            case TextPiece():
                self._write_text(shown.text)
            case CallStart():
                arguments = ", ".join(f"{key}={value!r}" for key, value in shown.call.arguments.items())
                self.line(f"  → {shown.call.name}({arguments})", "cyan")
            case CallEnd():
                result = shown.record.result
                self._print_result("←", result.text, "dim" if result.outcome == "ok" else "red")
            case Correction():
                self._print_result("→", shown.written, "cyan")
                self._print_result("←", shown.correction, "red")

    def _print_result(self, arrow: str, text: str, style: str) -> None:
        text = text if len(text) <= _MAX_RESULT_CHARS else text[:_MAX_RESULT_CHARS] + " ..."
        for line in text.splitlines() or [""]:
            self.line(f"  {arrow} {line}", style)

    def notify(self, level: str, text: str) -> None:
        """Prints what a tool reports."""
        self.line(f"{level}: {text}", "yellow")

    def line(self, text: str, style: str = "") -> None:
        """Prints a line of its own."""
        self.end()
        self.console.print(Text(visible(text), style), soft_wrap=True)

    def end(self) -> None:
        """Ends the model's line."""
        if self._is_inside:
            self.console.file.write("\n")
            self._is_inside = False
        self.console.file.flush()

    def _write_text(self, text: str) -> None:
        if not text:
            return
        file = self.console.file
        file.write("\n".join(visible(line) for line in text.split("\n")))
        file.flush()
        self._is_inside = True


class _Terminal:
    """Reads what a person says and does it."""

    def __init__(self, session: ChatSession, target: Target, screen: _Screen, runs_folder: Path) -> None:
        self._session, self._target, self._screen, self._runs_folder = session, target, screen, runs_folder
        self._conversation = session.conversation
        self._images: list[str] = []
        self._commands: dict[str, Callable[[str], None]] = {
            "/undo": self._undo_message,
            "/retry": self._retry_turn,
            "/tools": self._show_tools,
            "/system": self._start_over,
            "/image": self._add_image,
            "/reward": self._show_reward,
            "/save": self._save_trajectory,
            "/help": self._show_help,
        }

    def talk(self) -> None:
        """Reads lines until /quit, the end of the input, or a second Ctrl-C. Raises KeyboardInterrupt for that."""
        tools = counted(len(self._target.spec.tools), "tool")
        self._screen.line(f"{self._target.name}, {tools}. /help lists the commands, /quit ends.", "dim")
        was_interrupted = False
        while True:
            try:
                line = _read_input_line()
                if line is None or line.strip() == "/quit":
                    return
                was_interrupted = False
                self._run_line(line.strip())
            except KeyboardInterrupt:
                self._screen.end()
                if was_interrupted:
                    raise
                was_interrupted = True
                self._screen.line("Press Ctrl-C again, or write /quit, to end.", "dim")

    def _run_line(self, line: str) -> None:
        if not line:
            return
        word, _, rest = line.partition(" ")
        try:
            if line.startswith("/"):
                command = self._commands.get(word)
                if command is None:
                    raise RlfError(f"there is no command {word}. /help lists the commands.")
                command(rest.strip())
            else:
                images, self._images = self._images, []
                self._show_answer(self._session.run(self._conversation.say(line, images)))
        except RlfError as error:
            self._screen.line(str(error), "red")

    def _show_answer(self, trajectory: Trajectory) -> None:
        self._screen.end()
        if trajectory.answer is None:
            failures = trajectory.turns[-1].failures if trajectory.turns else ()
            why = f": {failures[0].message}" if failures else ""
            self._screen.line(f"no answer ({trajectory.stop}){why}", "yellow")

    def _undo_message(self, _: str) -> None:
        message = self._conversation.undo()
        self._screen.line(f"taken back: {message.content}", "dim")

    def _retry_turn(self, _: str) -> None:
        self._show_answer(self._session.run(self._conversation.retry()))

    def _show_tools(self, _: str) -> None:
        tools = [tool for tool in self._target.spec.tools if not tool.hidden]
        if not tools:
            self._screen.line("no tools", "dim")
        self._screen.console.print(facts_table((tool.name, visible(tool.description)) for tool in tools))

    def _start_over(self, text: str) -> None:
        self._conversation.begin(text)
        self._screen.line("started over" + (" with this system message" if text else ""), "dim")

    def _add_image(self, path: str) -> None:
        from rlf.core.images import read_image_file

        try:
            names = shlex.split(path)
        except ValueError as error:
            raise RlfError(
                f"got {path!r}, whose quotation mark is not closed. Write e.g. `/image photo.png`."
            ) from error
        if not names:
            raise RlfError("got no path. Write e.g. `/image photo.png`.")
        for name in names:
            read_image_file(name)
            self._images.append(name)
        self._screen.line(f"your next message has {counted(len(self._images), 'image')}", "dim")

    def _show_reward(self, gold: str) -> None:
        scored = self._session.run(self._conversation.score(gold or None))
        self._screen.console.print(facts_table(_score_rows(scored)))

    def _save_trajectory(self, _: str) -> None:
        from rlf.apps.chat.session import save

        scored = self._session.run(self._conversation.score(None))
        run_id = save(scored, self._target, self._runs_folder, ["rlf", *sys.argv[1:]])
        self._screen.line(f"saved: rlf trace {run_id} 0 --phase chat{runs_option(self._runs_folder)}")

    def _show_help(self, _: str) -> None:
        self._screen.console.print(facts_table(_HELP.items()))


def _score_rows(scored: Scored) -> list[tuple[str, str]]:
    rows = []
    for score in scored.scores:
        value = "no value" if score.value is None else f"{score.value:g} x {score.weight:g}"
        rows.append((visible(score.term), visible(f"{value}  {score.reason}")))
    return [*rows, ("reward", "none" if scored.reward is None else f"{scored.reward:g}")]


def _read_input_line() -> str | None:
    """The next line that was written; None at the end of the input."""
    if not sys.stdin.isatty():
        line = clean(sys.stdin.readline())
        print(f"> {line.rstrip()}" if line else "", flush=True)
        return line or None
    with suppress(ImportError):  # not on every system
        import readline  # noqa: F401 - lets `input` edit and remember lines
    try:
        return clean(input("> "))
    except EOFError:
        return None
