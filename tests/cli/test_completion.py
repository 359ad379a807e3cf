"""Shell completion knows files, keys, values, runs and tools, and is quick."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlf.apps.init.command import complete_template
from rlf.cli.completion import complete_run, complete_spec, complete_tool, complete_tool_file
from rlf.lineage.run import start_run
from rlf.lineage.store import open_store

from ..reports.synthetic import run_record

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, name in (("specs", "one"), ("specs", "two"), ("tool_specs", "look")):
        Path(folder).mkdir(exist_ok=True)
        Path(folder, f"{name}.yaml").write_text(f'name: "{name}"\n')


def test_spec_files_are_completed_from_their_folder_or_the_path_begun() -> None:
    assert complete_spec("") == ["specs/one.yaml", "specs/two.yaml"]
    assert complete_spec("specs/t") == ["specs/two.yaml"]
    assert complete_spec("./sp") == ["./specs/"]


def test_override_keys_are_completed_with_their_signs() -> None:
    assert complete_spec("train.learning") == ["train.learning_rate="]
    assert complete_spec("+train.kl.c") == ["+train.kl.coef="]
    assert complete_spec("~data.ev") and all(not key.endswith("=") for key in complete_spec("~data.ev"))
    assert complete_spec("train.algo") == ["train.algorithm="]


def test_override_values_are_completed_where_there_are_a_few() -> None:
    assert complete_spec("train.algorithm=gr") == ["train.algorithm=grpo", "train.algorithm=grpo_passk"]
    kinds = ("clock", "invariant", "logical")
    assert complete_spec("rollout.schedule=") == [f"rollout.schedule={kind}" for kind in kinds]
    assert complete_spec("eval.greedy=f") == ["eval.greedy=false"]
    assert "chat.format=auto" in complete_spec("chat.format=")
    assert complete_spec("train.steps=") == [] and complete_spec("no.such=") == []


def test_tools_are_completed_by_name_and_by_file() -> None:
    assert complete_tool("l") == ["look"]
    assert complete_tool_file("tool_specs/") == ["tool_specs/look.yaml"]
    assert complete_template("se") == ["search"] and complete_template("mc") == ["mcp"]


class Context:
    """What the shell has read so far."""

    params: dict[str, object] = {}  # noqa: RUF012  # as typer has it


def test_runs_are_completed_newest_first_and_a_broken_lineage_gives_none() -> None:
    known = [("latest", "the newest run"), ("latest~1", "the one before")]
    assert complete_run(Context(), "") == known  # type: ignore[arg-type]
    Path("runs").mkdir()
    with open_store(Path("runs/rlf.db")) as store:
        start_run(store, run_record())
    assert (run_record().id, run_record().name) in complete_run(Context(), "2")  # type: ignore[arg-type]
    Path("runs/rlf.db").write_bytes(b"broken" * 1000)
    assert complete_run(Context(), "x") == []  # type: ignore[arg-type]


def test_the_shell_is_answered_without_torch_or_sqlalchemy() -> None:
    code = (
        "import sys\n"
        "from rlf.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print({'torch', 'transformers', 'sqlalchemy'} & set(sys.modules), file=sys.stderr)\n"
    )
    shell = {"_RLF_COMPLETE": "complete_bash", "COMP_WORDS": "rlf run specs/one.yaml train.st", "COMP_CWORD": "3"}
    command = [sys.executable, "-c", code]
    environment = {**os.environ, **shell, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stderr.strip() == "set()"
    assert "train.steps=" in done.stdout.split()
