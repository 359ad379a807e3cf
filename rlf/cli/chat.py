"""`rlf chat`: what the model is shown, what is made of what it says, and whether the two fit."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from rlf.cli.arguments import AsJson, SpecArguments, split_arguments
from rlf.cli.envelope import print_envelope
from rlf.cli.foreign import NoImport, announced
from rlf.cli.output import facts_table, stdout_console
from rlf.core.errors import RlfError
from rlf.reports.quantities import visible

if TYPE_CHECKING:
    from rlf.api.chat.prompts import ShownPrompt
    from rlf.api.chat.turns import Parsed

chat_app = typer.Typer(name="chat", help="Look at prompts, and at how turns are read.", no_args_is_help=True)


@chat_app.command("show")
def show(arguments: SpecArguments, no_import: NoImport = False, as_json: AsJson = False) -> None:
    """Show the exact prompt of the first training row: its tokens, with special ones marked, and its sizes."""
    from rlf.api.chat.prompts import show_prompt

    with announced(no_import=no_import):
        prompt = show_prompt(*split_arguments(arguments))
    if as_json:
        print_envelope("chat show", prompt)
        return
    console = stdout_console()
    console.print(_coloured(prompt), soft_wrap=True)
    console.print()
    console.print(_sizes(prompt))
    console.print("ids  " + " ".join(str(token.id) for token in prompt.tokens), style="dim", soft_wrap=True)


def _coloured(prompt: ShownPrompt) -> Text:
    text = Text()
    for token in prompt.tokens:
        text.append(token.text, "reverse cyan" if token.is_special else "")
    return text


def _sizes(prompt: ShownPrompt) -> Table:
    table = facts_table()
    table.add_row("format", f"{prompt.format}: {prompt.reason}")
    table.add_row("tokens", f"{len(prompt.tokens)}, {prompt.num_special} of them special")
    for message in prompt.messages:
        table.add_row(message.role, f"{message.num_tokens} tokens: {visible(message.content[:80])}")
    table.add_row("tools", ", ".join(prompt.tools) or "none")
    table.add_row("a turn ends at", " ".join(prompt.stop_tokens))
    return table


@chat_app.command("parse")
def parse(
    file: Annotated[str, typer.Argument(metavar="[FILE|-]", help="The turn's text; `-` is standard input.")] = "-",
    format_name: Annotated[str, typer.Option("--format", help="The chat format's name.", show_default=False)] = "",
    truncated: Annotated[bool, typer.Option("--truncated", help="Read it as cut by its token limit.")] = False,
    thinking_tag: Annotated[
        str, typer.Option("--thinking-tag", help="The tag of thinking, e.g. `thinking`.", show_default="think")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Show what a format's parser makes of one sampled turn."""
    from rlf.api.chat.turns import parse_turn

    parsed = parse_turn(_read(file), format_name, truncated=truncated, thinking_tag=thinking_tag)
    if as_json:
        print_envelope("chat parse", parsed)
    else:
        stdout_console().print(_verdicts(parsed))


def _read(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RlfError(f"{file}: cannot be read as text: {error}. Name a file, or `-` for standard input.") from error


def _verdicts(parsed: Parsed) -> Table:
    table = facts_table()
    if parsed.thinking:
        table.add_row("thinking", visible(parsed.thinking))
    for call in parsed.calls:
        table.add_row(Text("call", "green"), visible(f"{call.name} {dict(call.arguments)}"))
    for failure in parsed.failures:
        where = f"at character {failure.position}" + (", to the end" if failure.structural else "")
        table.add_row(Text(failure.kind, "yellow"), visible(f"{failure.message} ({where})"))
    if parsed.answer is not None:
        table.add_row(Text("answer", "green"), visible(parsed.answer))
    return table


@chat_app.command("certify")
def certify(arguments: SpecArguments, as_json: AsJson = False) -> None:
    """Play every tool through tokenizer, template and loop and check every token; exit code 3 when one is wrong."""
    from rlf.api.chat.prompts import certify_spec

    certificate = certify_spec(*split_arguments(arguments))
    if as_json:
        print_envelope("chat certify", certificate)
        return
    table = facts_table()
    for check in certificate.checks:
        table.add_row(Text("ok", "green"), check)
    for difference in certificate.differences:
        table.add_row(Text("kept", "yellow"), difference)
    stdout_console().print(table)
    size = f"{certificate.num_sampled} of {certificate.num_tokens} tokens sampled"
    print(f"{certificate.format}: {certificate.num_turns} turns, {size}")
