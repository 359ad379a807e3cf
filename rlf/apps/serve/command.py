"""`rlf serve`: a model behind the OpenAI protocol; `rlf agent`: agents that play trajectories."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from rlf.cli.arguments import (
    DEFAULT_RUNS,
    TARGET,
    AsJson,
    CertificateFile,
    Host,
    KeyFile,
    Port,
    RunsFolder,
    SpecArguments,
    TargetChanges,
    split_arguments,
)
from rlf.cli.envelope import print_result
from rlf.cli.output import facts_table
from rlf.cli.start import settle
from rlf.core.errors import RlfError


def serve_command(
    target: Annotated[str, TARGET],
    arguments: TargetChanges = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    name: Annotated[
        str, typer.Option("--name", help="Name of the model in requests.", show_default="TARGET as written")
    ] = "",
    api_key: Annotated[
        str | None,
        typer.Option("--api-key", envvar="RLF_API_KEY", help="Key that requests must send.", show_default=False),
    ] = None,
    num_slots: Annotated[
        int, typer.Option("--max-concurrency", min=1, max=4096, help="Answers that are sampled at once.")
    ] = 64,
    max_queue: Annotated[
        int, typer.Option("--max-queue", min=0, help="Answers that may wait; further requests get 429.")
    ] = 256,
    request_s: Annotated[float, typer.Option("--request-s", min=1, help="Time for a request.")] = 600.0,
    agent: Annotated[
        bool, typer.Option("--agent", help="Run the spec's tools in the server: a request gets the final answer.")
    ] = False,
    certificate: CertificateFile = None,
    key: KeyFile = None,
    vllm: Annotated[
        str | None,
        typer.Option(
            "--vllm",
            metavar="ARGS",
            help="Serve with vLLM on GPUs; further arguments of `vllm serve` in quotes, or ''.",
            show_default=False,
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Accept only what judges send; takes no spec and serves only the model.")
    ] = False,
    runs_folder: RunsFolder = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Serve a model behind the OpenAI protocol until Ctrl-C, with the chat format it was trained with."""
    import asyncio

    from rlf.apps.serve import ServeSettings
    from rlf.apps.serve.serve import ServedEndpoint, serve_by_vllm, serve_model, used_alone, used_as_trained
    from rlf.core.servers import certificate_of

    if vllm is not None and certificate is not None:
        raise RlfError("--certificate: write --ssl-certfile and --ssl-keyfile into --vllm.")
    if vllm is not None and (agent or strict):
        raise RlfError("--vllm: vLLM's server has neither --agent nor --strict.")
    if strict and (agent or arguments):
        raise RlfError("--strict: serves only the model; leave out --agent and specs.")
    api_key = (api_key or "").strip() or None  # a key from a file ends in a line break, which no client sends
    if not api_key and host not in ("127.0.0.1", "::1", "localhost"):
        print(f"everyone who reaches {host} can use the model: set --api-key or RLF_API_KEY", file=sys.stderr)
    settings = ServeSettings(
        name=name or target,
        host=host,
        port=port,
        api_key=api_key,
        certificate=certificate_of(certificate, key),
        strict=strict,
        max_queue=max_queue,
        request_s=request_s,
    )
    files, overrides = split_arguments(arguments or [], need_file=False)
    used = used_alone(target) if strict else used_as_trained(target, files, overrides, runs_folder, plays=agent)

    def tell(url: str) -> None:
        print_result("serve", ServedEndpoint(url, settings.name), as_json, f"{settings.name} answers at {url}")
        sys.stdout.flush()

    with used as model:
        if vllm is None:
            settle()
            asyncio.run(serve_model(model, settings, num_slots=num_slots, tell=tell))
        else:
            own = shlex.split(vllm)
            asyncio.run(serve_by_vllm(model, settings, own, num_slots=num_slots, start_s=request_s, tell=tell))
    raise KeyboardInterrupt  # nothing else ends it


def certify_agent_command(
    arguments: SpecArguments,
    num: Annotated[int, typer.Option("--num", min=1, max=1000, help="Rows of the training set that are played.")] = 8,
    least: Annotated[
        float, typer.Option("--least", min=0, max=1, help="Share of calls that must continue an earlier one.")
    ] = 0.9,
    as_json: AsJson = False,
) -> None:
    """Play some rows by the spec's agent and compare each token; exit code 3 when it cannot be trained as it is."""
    from rlf.apps.serve.agents import certify

    found = certify.certify_agent(*split_arguments(arguments), num)
    rows = [
        ("played", found.sizes),
        ("tokens", f"{found.num_wrong or 'none'} wrong; {found.trained_share:.1%} of the sampled ones are trained"),
        *((name, str(count)) for name, count in found.notes.items()),
        *(("change", cure) for cure in found.cures),
        *([("without a call", f"{found.num_without_calls} trajectories")] if found.num_without_calls else []),
        *([("broken", found.error)] if found.error else []),
    ]
    holds = found.holds(least)
    verdict = Text("can be trained as it is", "green") if holds else Text("cannot be trained as it is", "red")
    print_result("agent certify", found, as_json, Group(facts_table(rows), verdict))
    if not holds:
        raise typer.Exit(3)
