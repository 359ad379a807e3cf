"""`rlf serve --vllm`: vLLM's own server, started as the model was trained. Untried on a GPU."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rlf.apps.openrlhf.rehearsal_place import rehearsal_environment
from rlf.apps.serve import ServeSettings
from rlf.apps.serve.serve import _vllm_parser, as_trained, run_server, serve_by_vllm, used_as_trained, vllm_server
from rlf.core import RlfError

_ENVIRONMENT = rehearsal_environment()
_IS_HERE = importlib.util.find_spec("vllm") is not None
_READ = """
import json, sys
try:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
except ImportError:
    from vllm.entrypoints.openai.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.utils.argparse_utils import FlexibleArgumentParser
read = make_arg_parser(FlexibleArgumentParser()).parse_args(sys.argv[1:])
validate_parsed_serve_args(read)
print(json.dumps([read.tool_call_parser, read.logprobs_mode, read.max_num_seqs, read.middleware]))
"""
_SERVER = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Health(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
server = HTTPServer(("127.0.0.1", int(sys.argv[1])), Health)
server.handle_request()
raise ValueError("no card\\n(Worker pid=3) of two")
"""


def arguments() -> list[str]:
    """What vLLM's parser reads of the command for a model that writes calls as Hermes does."""
    command = vllm_server("org/model", "mine", "127.0.0.1", 8000, as_trained("hermes", num_slots=64))
    return command[command.index("--served-model-name") :]


def test_vllm_reads_calls_by_its_parser_of_the_models_format(tmp_path: Path) -> None:
    with used_as_trained("builtin:tiny", [], [], tmp_path) as used:
        assert _vllm_parser(used) == "hermes"
    assert "--tool-call-parser" not in as_trained("", num_slots=64)
    assert arguments()[-5:] == ["--return-tokens-as-token-ids", "--generation-config", "vllm", "--max-num-seqs", "64"]


@pytest.mark.skipif(
    not _IS_HERE and not _ENVIRONMENT.is_ready(vllm=True),
    reason="vLLM is not installed here, nor in the environment that `rlf rehearse --setup --vllm` makes",
)
def test_the_command_is_one_that_vllms_own_parser_takes() -> None:
    python = sys.executable if _IS_HERE else str(_ENVIRONMENT.python)
    read = subprocess.run([python, "-c", _READ, *arguments()], capture_output=True, text=True, timeout=300, check=False)
    assert read.returncode == 0, read.stderr
    guard = "rlf.core.servers.VisitorGuard"
    assert json.loads(read.stdout.splitlines()[-1]) == ["hermes", "processed_logprobs", 64, [guard]]


@pytest.mark.skipif(_IS_HERE, reason="vLLM is installed here")
def test_without_vllm_the_option_is_refused(tmp_path: Path) -> None:
    with used_as_trained("builtin:tiny", [], [], tmp_path) as used, pytest.raises(RlfError, match="not installed here"):
        asyncio.run(serve_by_vllm(used, ServeSettings("tiny"), [], num_slots=1, start_s=1, tell=print))


@pytest.mark.parametrize(
    ("program", "answers", "words"),
    [(_SERVER, True, "has ended: ValueError: no card"), ("import nothing", False, "cannot be served: ModuleNotFound")],
)
def test_a_server_is_watched_to_its_end(program: str, answers: bool, words: str) -> None:
    told = list[str]()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = probe.getsockname()
    command = [sys.executable, "-I", "-c", program, str(address[1])]
    with pytest.raises(RlfError, match=words):
        asyncio.run(run_server("tiny", address, command, {}, start_s=60, tell=told.append))
    assert told == ([f"http://127.0.0.1:{address[1]}/v1"] if answers else [])
