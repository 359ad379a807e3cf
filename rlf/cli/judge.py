"""`rlf judge`: judges served on this machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from rlf.cli.arguments import AsJson, CertificateFile, Host, KeyFile
from rlf.cli.completion import complete_reward_file
from rlf.cli.envelope import print_result
from rlf.core.errors import RlfError

if TYPE_CHECKING:
    from rlf.api.judges.serve import JudgeEndpoints

judge_app = typer.Typer(name="judge", help="Serve the models that judge.", no_args_is_help=True)


@judge_app.callback()
def _keep_group() -> None:
    """Keeps `serve` a command of its own."""


@judge_app.command("serve")
def serve_judge(
    what: Annotated[
        str,
        typer.Argument(
            metavar="SPEC|MODEL",
            help="A spec or reward file with judges that have `serve`; or a folder, Hugging Face id or builtin name.",
            autocompletion=complete_reward_file,
        ),
    ],
    args: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS...]", help="For a MODEL: further arguments of `vllm serve`.")
    ] = None,
    num: Annotated[int, typer.Option("--num", min=1, max=64, help="For a MODEL: number of servers.")] = 1,
    gpus: Annotated[
        str,
        typer.Option(
            "--gpus", help="For a MODEL: GPUs that the servers share, e.g. 0,1.", show_default="those visible"
        ),
    ] = "",
    host: Host = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            "--port", min=0, max=65535, help="Port of the first server, the others follow; 0 takes free ports."
        ),
    ] = 8100,
    start_s: Annotated[float, typer.Option("--start-s", min=1, help="For a MODEL: time limit of loading it.")] = 900.0,
    certificate: CertificateFile = None,
    key: KeyFile = None,
    as_json: AsJson = False,
) -> None:
    """Serve judges behind the OpenAI protocol until Ctrl-C: by vLLM where it is installed, else by transformers."""
    import asyncio

    from rlf.api.judges.serve import Serve, judges_of, serve_judges
    from rlf.core.servers import certificate_of

    numbers = [number.strip() for number in gpus.split(",") if number.strip()]
    if not all(number.isdigit() for number in numbers):
        raise RlfError(f"--gpus: got {gpus!r}; expected numbers. Write e.g. `--gpus 0,1`.")
    declared = Serve(model=what, num=num, gpus=tuple(map(int, numbers)), args=tuple(args or ()), start_s=start_s)

    def tell(served: JudgeEndpoints) -> None:
        lines = [f"  - {{url: {server.url}, model: {server.model!r}}}" for server in served.endpoints]
        print_result("judge serve", served, as_json, "\n".join(["endpoints:", *lines]))
        sys.stdout.flush()

    asyncio.run(serve_judges(judges_of(what, declared), host, port, tell, certificate_of(certificate, key)))
    raise KeyboardInterrupt  # nothing else ends it
