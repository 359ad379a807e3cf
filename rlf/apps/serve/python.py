"""`rlf.serve`: a model behind the OpenAI protocol, for as long as a block runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlf.apps.serve.serve import ServedEndpoint
from rlf.core.errors import RlfError
from rlf.processes import supervise
from rlf.processes.child import start_apart
from rlf.python.runs import Run
from rlf.python.specs import DEFAULT_RUNS, AnyPath, Overrides, Spec, to_command


@contextmanager
def serve(
    target: Run | str,
    spec: Spec = (),
    overrides: Overrides = (),
    *,
    agent: bool = False,
    api_key: str | None = None,
    port: int = 0,
    runs_folder: AnyPath = DEFAULT_RUNS,
) -> Iterator[ServedEndpoint]:
    """Serves a model from a process of its own until the block ends: what `rlf serve` does, on this machine alone.

    Args:
        target: a run, `RUN@STEP`, a folder, a Hugging Face id or a `builtin:` name.
        spec: one that differs from its run's.
        agent: whether the server plays the spec's tools itself, so that a request gets the final answer.
        api_key: what requests must send.
        port: 0 takes any that is free.

    Raises:
        RlfError: it is no model, its spec is wrong, or the port is in use.
    """
    name, folder = (target.id, target.runs_folder) if isinstance(target, Run) else (target, Path(runs_folder))
    files, texts = to_command(spec, overrides, folder, in_file=True)
    command = [sys.executable, "-m", "rlf", "serve", name, *map(str, files), *texts]
    command += ["--port", str(port), "--runs", str(folder), "--json", *(["--agent"] if agent else [])]
    keyed = os.environ | ({} if api_key is None else {"RLF_API_KEY": api_key})  # not an argument, which all users see
    with (
        tempfile.TemporaryFile() as messages,
        start_apart(  # below a supervisor, which ends it when this process dies
            [sys.executable, supervise.__file__, *command], stdout=subprocess.PIPE, stderr=messages, env=keyed
        ) as process,
    ):
        try:
            assert process.stdout is not None, "it is a pipe"
            line = process.stdout.readline()
            if not line:
                messages.seek(0)
                raise RlfError(
                    messages.read().decode(errors="replace").strip() or f"rlf serve {name}: ended without a message"
                )
            yield ServedEndpoint(**json.loads(line)["data"])
        finally:
            process.terminate()
