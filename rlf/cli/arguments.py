"""Arguments and options that several commands share."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rlf.core.errors import RlfError, SpecError
from rlf.core.registry import is_present, load_function


def completing(name: str) -> Callable[..., Any]:
    """A completion, whose module is loaded when a shell asks for it."""
    home = f"cli.completion:complete_{name}"
    if name == "run":
        return lambda ctx, incomplete: load_function(home)(ctx, incomplete)
    return lambda incomplete: load_function(home)(incomplete)


SpecArguments = Annotated[
    list[str],
    typer.Argument(
        metavar="SPEC|KEY=VALUE",
        help="Spec files, later ones laid over earlier ones, then overrides such as `train.steps=20` or `~eval`.",
        show_default=False,
        autocompletion=completing("spec"),
    ),
]
TARGET = typer.Argument(
    metavar="TARGET",
    help="A run, RUN@STEP, a folder, a Hugging Face id or a `builtin:` name.",
    show_default=False,
    autocompletion=completing("run"),
)
"""Of `rlf chat` and `rlf serve`."""
TargetChanges = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SPEC|KEY=VALUE]...",
        help="Specs and overrides, if they differ from its run's.",
        show_default=False,
        autocompletion=completing("spec"),
    ),
]
DEFAULT_RUNS = Path("runs")
RunsFolder = Annotated[Path, typer.Option("--runs", metavar="DIR", help="Folder of runs and their lineage.")]
RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run's id, the beginning of one, `latest`, or `latest~1`: the one before.",
        show_default=False,
        autocompletion=completing("run"),
    ),
]
RunNames = Annotated[list[str], typer.Argument(metavar="RUN...", help="Runs.", autocompletion=completing("run"))]
ToolFiles = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SPEC|FILE|KEY=VALUE",
        help="Specs, with overrides, or tool files; without any, every file in tool_specs/.",
        autocompletion=completing("tool_file"),
    ),
]
EndpointUrl = Annotated[
    str | None, typer.Option("--endpoint", metavar="URL", help="A model behind an OpenAI-compatible server.")
]
ServedName = Annotated[str | None, typer.Option("--model", metavar="NAME", help="The server's name of that model.")]
ApiKeyVariable = Annotated[
    str | None, typer.Option("--api-key-env", metavar="NAME", help="Environment variable with the server's key.")
]
RequestTime = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="Time of one request to the model's server.")
]
Host = Annotated[str, typer.Option("--host", help="Address to listen on.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes any that is free.")]
McpTransport = Annotated[
    Literal["stdio", "http"] | None, typer.Option("--mcp", help="Serve MCP clients.", show_default=False)
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
HtmlFile = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Also write one self-contained page.")]
CertificateFile = Annotated[
    Path | None, typer.Option("--certificate", help="Serve over TLS with this certificate (PEM).", show_default=False)
]
KeyFile = Annotated[Path | None, typer.Option("--key", help="Key of the certificate (PEM).", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def activation_hint() -> str:
    """A line that says how `rlf` becomes a command of this shell; empty where it is one."""
    scripts = Path(sys.executable).parent
    found = shutil.which("rlf")
    if not (scripts / "activate").is_file() or (found is not None and Path(found).parent == scripts):
        return ""
    return f"\n  (to type `rlf` in this shell: source {shlex.quote(str(scripts / 'activate'))})"


def runs_option(runs_folder: Path) -> str:
    """The option by which a command finds the runs of a folder, ` --runs DIR`; empty for the default."""
    return "" if runs_folder == DEFAULT_RUNS else f" --runs {shlex.quote(str(runs_folder))}"


_BARE_KEY = re.compile(r"[a-z_]+(\.\w+)+")


def is_override(argument: str) -> bool:
    """Whether an argument sets a key, or removes one: it holds a `=`, or begins with `~` and names no file."""
    return "=" in argument or (argument.startswith("~") and "/" not in argument)


def split_arguments(arguments: Sequence[str], *, need_file: bool = True) -> tuple[list[Path], list[str]]:
    """Spec files and overrides.

    Raises:
        RlfError: no spec file is among the arguments, and one is needed, since no override gives the spec a `name`.
    """
    _refuse_spaces(arguments)
    overrides = [argument for argument in arguments if is_override(argument)]
    files = [Path(argument) for argument in arguments if not is_override(argument)]
    if need_file and not files and not any(text.startswith("name=") for text in overrides):  # a spec of no file
        raise RlfError(
            f"got {' '.join(arguments)}; expected a spec file. Write e.g. `specs/search.yaml train.steps=20`."
        )
    for file in files:  # `train.steps` alone would be taken for one
        if _BARE_KEY.fullmatch(str(file)) and file.suffix not in (".yaml", ".yml", ".json") and not file.exists():
            raise RlfError(f"got {file}; expected a spec file or a key with its value. Write e.g. `{file}=VALUE`.")
    return files, overrides


def _refuse_spaces(arguments: Sequence[str]) -> None:
    """`train.steps = 3`, or with a space on one side, comes as several arguments."""
    for at, argument in enumerate(arguments):
        if argument.startswith("="):
            key, value = arguments[at - 1] if at else "KEY", argument[1:] or "".join(arguments[at + 1 : at + 2])
        elif argument.endswith("=") and at + 1 < len(arguments):
            key, value = argument[:-1], arguments[at + 1]
            if is_override(value) or Path(value).suffix in (".yaml", ".yml", ".json"):
                continue
        else:
            continue
        meant = shlex.quote(f"{key}={value or 'VALUE'}")
        raise RlfError(f"an override has no spaces around `=`. Write {meant}.")


# What apps bring to commands of the core.


def load_part(home: str, needed_by: object) -> Any:
    """A function that an app brings to a command of the core. Raises RlfError where this installation lacks it."""
    if not is_present(home):
        raise RlfError(
            f"{needed_by}: this installation of rlf lacks the part that does it, rlf.{home.rpartition('.')[0]}."
        )
    return load_function(home)


def suggest_sweep(error: SpecError, overrides: Sequence[str]) -> SpecError:
    """The same faults, with `-m` named where a value has commas, as a sweep's has; as they are where no app sweeps."""
    home = "apps.sweep.axes:name_axes"
    found: SpecError = load_function(home)(error, overrides) if is_present(home) else error
    return found
