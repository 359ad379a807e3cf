"""`rlf format`: what the model is shown, what is made of what it says, and whether the two fit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from rlf.cli.arguments import AsJson, SpecArguments, split_arguments
from rlf.cli.envelope import NoImport, announced, print_result
from rlf.cli.output import facts_table, stdout_console
from rlf.core.errors import RlfError
from rlf.reports.sheets import visible

if TYPE_CHECKING:
    from rlf.chat.marks import ParsedTurn
    from rlf.runs.players import ShownPrompt


def show_command(arguments: SpecArguments, no_import: NoImport = False, as_json: AsJson = False) -> None:
    """Show the exact prompt of the first training row: its tokens, with special ones marked, and its sizes."""
    from rlf.runs.players import show_prompt

    with announced(no_import=no_import):
        prompt = show_prompt(*split_arguments(arguments))
    print_result("format show", prompt, as_json, lambda: _print_prompt(prompt))


def _print_prompt(prompt: ShownPrompt) -> None:
    console = stdout_console()
    text = Text.assemble(*((token.text, "reverse cyan" if token.is_special else "") for token in prompt.tokens))
    console.print(text, "", soft_wrap=True)
    console.print(_show_sizes(prompt))
    console.print("ids  " + " ".join(str(token.id) for token in prompt.tokens), style="dim", soft_wrap=True)


def _show_sizes(prompt: ShownPrompt) -> Table:
    sizes = [(each.role, f"{each.num_tokens} tokens: {visible(each.content[:80])}") for each in prompt.messages]
    return facts_table(
        [
            ("format", f"{prompt.format}: {prompt.reason}"),
            ("tokens", f"{len(prompt.tokens)}, {prompt.num_special} of them special"),
            *sizes,
            ("tools", ", ".join(prompt.tools) or "none"),
            ("a turn ends at", " ".join(prompt.stop_tokens)),
        ]
    )


def parse_command(
    file: Annotated[str, typer.Argument(metavar="[FILE|-]", help="The turn's text; `-` is standard input.")] = "-",
    format_name: Annotated[str, typer.Option("--format", help="The chat format's name.", show_default=False)] = "",
    truncated: Annotated[bool, typer.Option("--truncated", help="Parse it as cut off at its token limit.")] = False,
    thinking_tag: Annotated[
        str, typer.Option("--thinking-tag", help="The tag of thinking, e.g. `thinking`.", show_default="think")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Show what a format's parser makes of one sampled turn."""
    from rlf.apps.formats.python import parse_turn

    parsed = parse_turn(_read_turn(file), format_name, truncated=truncated, thinking_tag=thinking_tag)
    print_result("format parse", parsed, as_json, facts_table(_list_verdicts(parsed)))


def _read_turn(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RlfError(f"{file}: cannot be read as text: {error}. Name a file, or `-` for standard input.") from error


def _list_verdicts(parsed: ParsedTurn) -> Iterator[tuple[str | Text, str]]:
    if parsed.thinking:
        yield "thinking", visible(parsed.thinking)
    for call in parsed.calls:
        yield Text("call", "green"), visible(f"{call.name} {dict(call.arguments)}")
    for failure in parsed.failures:
        where = f"at character {failure.position}" + (", to the end" if failure.structural else "")
        yield Text(failure.kind, "yellow"), visible(f"{failure.message} ({where})")
    if parsed.answer is not None:
        yield Text("answer", "green"), visible(parsed.answer)


def certify_command(arguments: SpecArguments, as_json: AsJson = False) -> None:
    """Play every tool through tokenizer, template and loop and check every token; exit code 3 when one is wrong."""
    from rlf.apps.formats.python import certify_spec

    certificate = certify_spec(*split_arguments(arguments))
    checks = [(Text("ok", "green"), check) for check in certificate.checks]
    kept = [(Text("kept", "yellow"), difference) for difference in certificate.differences]
    size = f"{certificate.num_sampled} of {certificate.num_tokens} tokens sampled"
    line = Text(f"{certificate.format}: {certificate.num_turns} turns, {size}")
    print_result("format certify", certificate, as_json, Group(facts_table([*checks, *kept]), line))
