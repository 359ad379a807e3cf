"""`rlf`: the commands, and how what goes wrong becomes a message and an exit code.

0 done, 1 the run failed or rlf has a defect (traceback), 2 the input is wrong, 3 a check failed, 130 interrupted
(Ctrl-C, SIGTERM, or a closed terminal), 141 the reader of the output went away.
"""

from __future__ import annotations

import errno
import os
import sys
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from rlf import __version__
from rlf.cli.commands import COMMANDS, GROUPS, HOMES, SECTIONS, members
from rlf.core.errors import RlfError, RunError
from rlf.core.process import RefusedOutput, configure, heed_memory_limit, heed_signals, import_from, keep_streams
from rlf.core.registry import load_function

_WrongUsage: type[Exception] = typer.BadParameter.__mro__[1]
"""The error of a command line that no command takes; typer has no name of its own for it."""


class _Commands(TyperGroup):
    """The top-level commands, each loaded when it is asked for, with one boundary around them all."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the options before the command."""
        try:
            return super().parse_args(ctx, args)
        except _WrongUsage as error:
            _explain(error, args)
            raise

    def list_commands(self, ctx: Any) -> list[str]:
        """All names, in the order of the help."""
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the commands by what they are for, without loading those that have a summary."""
        width = max(map(len, COMMANDS))
        for title, summaries in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), line) for name, line in summaries.items() if name in COMMANDS])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command; a name that is none loads them all, since the message names those that are near."""
        self.commands.update({name: _load_command(name) for name in ({cmd_name}.intersection(COMMANDS) or COMMANDS)})
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """A command; for a word that others have for one, what to write instead."""
        if args[0] not in COMMANDS:
            from rlf.cli.elsewhere import command_for

            if ours := command_for(args):
                _exit_with(f"there is no `rlf {args[0]}`. Write `rlf {ours}`.", RlfError.exit_code)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Runs a command; what the user can fix is reported in words, without a traceback."""
        arguments = list(ctx.args)
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except _WrongUsage as error:
            _explain(error, arguments)
            raise
        except RlfError as error:
            _exit_with(str(error), error.exit_code)
        except KeyboardInterrupt:
            _exit_with("interrupted", 130)
        except Exception as error:
            _fail_for_os(error)
            raise
        return result


class _Group(TyperGroup):
    """Commands of one word, each with the whole first paragraph of its help."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes names and first paragraphs; typer would cut them to one line."""
        commands = [(name, self.commands[name]) for name in self.list_commands(ctx) if not self.commands[name].hidden]
        with formatter.section("Commands"):
            formatter.write_dl([(name, " ".join((one.help or "").split("\n\n")[0].split())) for name, one in commands])


@cache
def _load_command(name: str) -> Any:
    if name not in GROUPS:
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(name)(load_function(HOMES[name]))
        return typer.main.get_command(alone)
    group = typer.Typer(name=name, cls=_Group, help=GROUPS[name], no_args_is_help=True, rich_markup_mode=None)
    group.callback()(lambda: None)  # without one, typer makes a group of one command that command
    for word, home in members(name):
        group.command(word, no_args_is_help=(name, word) == ("runs", "compare"))(load_function(home))
    return typer.main.get_group(group)


def _explain(error: Exception, arguments: list[str]) -> None:
    from rlf.cli.elsewhere import explain_usage

    if (words := explain_usage(error, arguments)) is not None:
        _exit_with(words, RlfError.exit_code)


def _exit_with(message: str, exit_code: int) -> NoReturn:
    from rlf.core.redact import strike_environment

    print(strike_environment(message), file=sys.stderr)
    raise typer.Exit(exit_code)


def _fail_for_os(error: Exception) -> None:
    """Exits with words for what a user's disk or folder refuses, silently for a closed pipe; returns for a defect."""
    if isinstance(error, RefusedOutput):
        return  # `main` says so, since the help fails outside of every command
    if isinstance(error, BrokenPipeError):
        _drop_output()
        raise typer.Exit(141) from error
    file, number = (error.filename, error.errno) if isinstance(error, OSError) else (None, None)
    if number in _REFUSED and file:
        _exit_with(f"{file}: {os.strerror(number)}. Name a file or folder that you may use.", RlfError.exit_code)
    if number == errno.ENAMETOOLONG:
        name = max(Path(str(file)).parts, key=len)
        length = f"the name has {len(os.fsencode(name))} bytes; file systems take 255"
        _exit_with(f"{name[:40]}...: {length}. Write a shorter one.", RlfError.exit_code)
    from rlf.core.files import refusal

    words = refusal(error)
    if words is not None:
        where = f"{file}: " if file else ""
        _exit_with(f"{where}{words}; `rlf resume RUN` continues a run that was stopped. ({error})", RunError.exit_code)


def _drop_output() -> None:
    """Has what is still buffered go nowhere: it would be flushed at exit, into the closed pipe or full disk again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOTDIR, errno.EISDIR})
"""Errors of the system for a path that a user named."""

app = typer.Typer(
    name="rlf",
    cls=_Commands,
    help="Reinforcement learning of tool-using language models, declared in YAML.",
    epilog="`rlf run specs/search.yaml` trains the built-in example end to end.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"rlf {__version__}")
        raise typer.Exit


@app.callback()
def _set_options(
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Show the version.", callback=_show_version, is_eager=True)
    ] = False,
    verbosity: Annotated[
        int, typer.Option("-v", "--verbose", count=True, show_default=False, help="Log to stderr; twice for debugging.")
    ] = 0,
) -> None:
    configure(verbosity)


def main() -> None:
    """The entry point."""
    heed_signals()
    keep_streams()
    heed_memory_limit()
    for word in sys.argv[1:]:
        if any("\ud800" <= character <= "\udfff" for character in word):  # not UTF-8, as a file's name may be
            from rlf.core.redact import clean

            fix = "Rename the file, or write the argument in UTF-8."
            print(f"{clean(word)!r}: this is not UTF-8. {fix}", file=sys.stderr)
            sys.exit(RlfError.exit_code)
    try:
        import_from(Path.cwd())
    except FileNotFoundError:
        print("the current folder was removed. Change to another one, then try again.", file=sys.stderr)
        sys.exit(RlfError.exit_code)
    try:
        app(prog_name="rlf")
    except RefusedOutput as error:
        _drop_output()
        print(f"{error.strerror}. Make room, or send it elsewhere (`> FILE`).", file=sys.stderr)
        sys.exit(RunError.exit_code)
