"""An exported model says what it is, is served by the line that is printed, and goes to the Hub as it is."""

import base64
import importlib.util
import json
import shlex
import threading
import xml.etree.ElementTree as ET
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from typer.testing import CliRunner

from rlf.apps.keep.export import export_model, find_licence, push_folder
from rlf.chat.format import FORMATS
from rlf.cli.main import app
from rlf.core import RlfError, RunError
from rlf.engines.local.model import load_model
from rlf.runs.place import open_reader

from .conftest import ROOT


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    """The folder of a trained run's model."""
    folder = tmp_path_factory.mktemp("exported") / "model"
    return export_model(trained[1], folder, runs_folder=trained[0])


def test_a_card_says_what_a_model_was_made_from_and_what_it_came_to(trained, exported):
    runs, run_id = trained
    card = (exported.folder / "README.md").read_text()
    with open_reader(runs) as reader:
        record = reader.get_run(run_id).record
        last = next(item.metrics for item in reader.evaluations(run_id) if item.step == 2 and item.mode == "sampled")
    assert card.startswith("---\nlibrary_name: transformers\n") and "license: mit" in card
    for file in record.files:
        if file.role in ("data", "model", "tokenizer", "template"):
            assert file.sha256 in card
    rows = [line for line in card.splitlines() if line.startswith("| ")]
    for words in ("| search | Find passages", "| calculator |", "| exact_match | rule: exact_match | 1 |"):
        assert any(row.startswith(words) for row in rows)
    assert "| learning_rate | 0.0003 |" in rows and "| max_total_tokens | 320 |" in rows
    assert any(row.startswith("| step 2 | sampled |") and f"{100 * last['success']:.1f} %" in row for row in rows)
    assert record.plan_hash in card and f"rlf runs reproduce {run_id}" in card
    assert "No run of its lineage is tagged `control`." in card


def test_the_curve_is_an_image_that_stands_by_itself(exported):
    image = ET.parse(exported.folder / "curve.svg").getroot()
    assert image.tag.endswith("svg") and image.findall(".//{*}path")
    assert "held-out success, sampled" in image.find("{*}title").text
    assert "![held-out success by step](curve.svg)" in (exported.folder / "README.md").read_text()


def test_runs_tagged_control_stand_beside_the_model(trained, tmp_path):
    from rlf.lineage.upkeep import tag

    from .test_evaluations import FEW, EvaluationOptions, tried

    runs, run_id = trained
    own = tried(runs, run_id, asked=EvaluationOptions(overrides=FEW)).run_ids[0]
    (tmp_path / "mine.jsonl").write_text('{"question": "Where was Bednox born?", "answer": "Rinkux", "kind": "one"}\n')
    data = str(tmp_path / "mine.jsonl")
    other = tried(runs, run_id, asked=EvaluationOptions(overrides=("eval.greedy=false",), data=data)).run_ids[0]
    control = tried(
        runs, "builtin:tiny", asked=EvaluationOptions(files=(ROOT / "specs/search.yaml",), overrides=FEW)
    ).run_ids[0]
    with open_reader(runs) as reader:
        tag(reader, control, ["control"], remove=False)
        export_model(run_id, tmp_path / "model", runs_folder=runs)
        tag(reader, control, ["control"], remove=True)
    card = (tmp_path / "model" / "README.md").read_text()
    assert f"| search | {control} | sampled, step 0 |" in card
    assert f"| step 2, builtin:encyclopedia/heldout ({own}) | sampled |" in card
    assert f"| step 2, mine.jsonl ({other}) | sampled |" in card and str(tmp_path) not in card


def test_the_licence_is_the_one_that_the_bases_own_card_names(tmp_path):
    (tmp_path / "README.md").write_text("---\nlanguage: en\nlicense: apache-2.0\n---\nlicense: other\n")
    assert find_licence(str(tmp_path)) == "apache-2.0"
    (tmp_path / "README.md").write_text("license: other\n")
    assert find_licence(str(tmp_path)) == ""
    assert find_licence("nobody/nothing") == ""


def test_an_exported_folder_reloaded_by_transformers_gives_equal_logits(trained, exported):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    trained_model = load_model(
        str(trained[0] / trained[1] / "model"), dtype=torch.float32, device=torch.device("cpu"), frozen=True
    )
    reloaded = AutoModelForCausalLM.from_pretrained(exported.folder)
    tokenizer = AutoTokenizer.from_pretrained(exported.folder)
    tokens_BT = tokenizer("Where was Fodwol born?", return_tensors="pt").input_ids
    with torch.no_grad():
        ours = trained_model.full(input_ids=tokens_BT, use_cache=False).logits
        theirs = reloaded(input_ids=tokens_BT, use_cache=False).logits
    pairs = zip(trained_model.full.parameters(), reloaded.parameters(), strict=True)
    assert all(one.equal(other) for one, other in pairs)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_the_command_that_is_printed_names_vllms_parser_of_the_format(exported):
    command = ["vllm", "serve", str(exported.folder), "--served-model-name", "search"]
    assert list(exported.vllm) == [*command, "--enable-auto-tool-choice", "--tool-call-parser", "hermes"]


def test_the_command_is_one_that_vllm_takes(exported):
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed here: its own parser has NOT read the printed command")
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.tool_parsers import ToolParserManager
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = make_arg_parser(FlexibleArgumentParser())
    read = parser.parse_args(list(exported.vllm[2:]))
    assert (read.model_tag, read.tool_call_parser) == (str(exported.folder), "hermes")
    named = {kind for name in FORMATS.names() if (kind := FORMATS.get(name).vllm_parser)}
    assert named <= set(ToolParserManager.list_registered())


@contextmanager
def a_hub():
    """A stand-in for the Hub's API: repositories that are made, and the files that are committed to them."""
    made, files = [], {}

    class Handler(BaseHTTPRequestHandler):
        @property
        def here(self):
            return f"http://{self.headers['Host']}"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Authorization") != "Bearer hf_test":
                return self.answer(401, {"error": "no token"})
            if self.path == "/api/repos/create":
                made.append(json.loads(body))
                return self.answer(200, {"url": f"{self.here}/me/tiny", "name": "me/tiny", "id": "1"})
            if self.path == "/api/validate-yaml":
                return self.answer(200, {"errors": [], "warnings": []})
            if "/preupload/" in self.path:
                names = [file["path"] for file in json.loads(body)["files"]]
                return self.answer(
                    200, {"files": [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]}
                )
            assert "/commit/" in self.path, self.path
            for line in body.decode().splitlines():
                values = json.loads(line)
                if values["key"] == "file":
                    files[values["value"]["path"]] = base64.b64decode(values["value"]["content"])
            return self.answer(200, {"commitUrl": f"{self.here}/me/tiny/commit/0", "commitOid": "0" * 40})

        def do_GET(self):
            self.answer(200, {"id": "me/tiny", "siblings": [], "sha": "0" * 40})

        def answer(self, status, values):
            data = json.dumps(values).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", made, files
    finally:
        server.shutdown()
        server.server_close()


def test_a_model_is_pushed_whole(exported, monkeypatch):
    with a_hub() as (url, made, files):
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
        monkeypatch.setenv("HF_TOKEN", "hf_test")
        shown = push_folder(exported.folder, "me/tiny", dry_run=True)
        assert (made, files) == ([], {}) and shown.dry_run and shown.files["README.md"] > 1000
        done = push_folder(exported.folder, "me/tiny", private=True)
    assert made[0]["name"] == "tiny" and "private" in (made[0].get("visibility"), *made[0])
    assert files == {name: (exported.folder / name).read_bytes() for name in done.files}
    assert {"README.md", "curve.svg", "model.safetensors", "rlf_run.json"} <= files.keys()


def test_a_hub_that_refuses_is_named_and_the_folder_stays(exported, monkeypatch):
    with a_hub() as (url, _, files):
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
        monkeypatch.setenv("HF_TOKEN", "hf_wrong")
        with pytest.raises(RunError, match=r"--push me/tiny: .*401.*HF_TOKEN"):
            push_folder(exported.folder, "me/tiny")
        assert files == {} and (exported.folder / "README.md").is_file()
    with pytest.raises(RlfError, match=r"--push: got 'a/b/c'.*OWNER/NAME"):
        push_folder(exported.folder, "a/b/c")


def test_a_hub_that_cannot_be_reached_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_TOKEN", "hf_x")
    with pytest.raises(RunError, match=r"--push me/tiny: .*refused"):
        push_folder(tmp_path, "me/tiny")


def test_the_command_line_shows_what_would_be_sent(trained, tmp_path, monkeypatch):
    runs, run_id = trained
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    folder = tmp_path / "out"
    command = ["export", run_id, str(folder), "--push", "me/tiny", "--dry-run", "--runs", str(runs)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0 and "would be sent (--dry-run) to http://127.0.0.1:9/me/tiny" in result.output
    assert f"vllm serve {shlex.quote(str(folder))} --served-model-name search" in result.output
    alone = CliRunner().invoke(app, ["export", run_id, str(tmp_path / "other"), "--dry-run", "--runs", str(runs)])
    assert alone.exit_code == 2 and "--push OWNER/NAME" in alone.output and not (tmp_path / "other").exists()
