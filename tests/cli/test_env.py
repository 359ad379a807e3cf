"""`rlf env list`, `show`, `test`, `attack` and `play` as users type them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from rlf.cli.main import app

VAULTS = Path(__file__).parents[1] / "environments" / "vaults.py"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Types a command in a folder with one spec for each class that is asked for."""
    monkeypatch.chdir(tmp_path)
    rows = [{"question": "Please.", "answer": code} for code in ("AMBER7", "BASALT3")]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def typed(*words, world="Vault", given=None):
        (tmp_path / "world.yaml").write_text(
            f"env: {{kind: python, callable: '{VAULTS}:{world}'}}\n"
            "rewards: [{kind: env, name: opened, score: opened}]\n"
            "data: {train: {path: rows.jsonl, prompt: question, answer: answer}}\n"
        )
        return CliRunner().invoke(app, ["env", *words], input=given)

    return typed


def test_a_sound_world_passes_and_json_has_every_verdict(run):
    done = run("prove", "world.yaml", "--json")
    page = json.loads(done.stdout)["data"]
    assert done.exit_code == 0 and page["is_sound"] and page["num_tasks"] == 2
    assert [one["name"] for one in page["verdicts"] if one["sign"] == "unknown"] == ["snapshot"]


def test_a_fault_is_exit_code_three_with_its_name(run):
    done = run("attack", "world.yaml", world="Injection")
    assert done.exit_code == 3
    assert "failed   injection" in done.output and "injection." in done.stderr


def test_runs_of_an_attacked_world_are_recorded_with_the_page_while_it_is_unchanged(run):
    from rlf.runs.worlds import page_notices, world_spec

    sha256 = json.loads(run("attack", "world.yaml", "--json").stdout)["data"]["sha256"]
    spec = world_spec([Path("world.yaml")], [])
    (notice,) = page_notices(spec, Path("runs"))
    assert notice.data["world_page"]["sha256"] == sha256 and sha256[:16] in notice.text
    changed = world_spec([Path("world.yaml")], ["env.limits.step_s=1"])
    assert page_notices(changed, Path("runs")) == []
    (page,) = Path("runs", "worlds").glob("*.json")
    whole = page.read_text()
    for damaged in (whole.replace('"ok"', '"failed"', 1), whole[:9], "[]", '{"verdicts": []}'):
        page.write_text(damaged)
        (notice,) = page_notices(spec, Path("runs"))
        assert notice.level == "warning" and str(page) in notice.text


def test_a_person_plays_a_world_line_by_line(run):
    done = run("play", "world.yaml", given='look place=desk\nopen {"code": "AMBER7"}\n\n')
    assert done.exit_code == 0, done.output
    assert "A note: AMBER7" in done.output and "opened: false -> true" in done.output
    assert "2 actions; scores: opened 1" in done.output


def test_a_misspelt_line_of_a_person_ends_no_episode(run):
    done = run("play", "world.yaml", given="/undo\n/help\nlok place=desk\nlook place=desk\n\n")
    assert "there is nothing to take back" in done.output and "an empty line ends" in done.output
    assert "there is no tool 'lok'; did you mean 'look'?" in done.output
    assert "1 actions; scores: opened 0" in done.output


def test_an_action_of_a_person_is_taken_back(run):
    given = 'open {"code": "WRONG"}\nlook place=desk\n/undo\n/undo\nlook place=shelf\n\n'
    done = run("play", "world.yaml", given=given)
    assert done.exit_code == 0, done.output
    assert done.output.count("taken back") == 2 and "A note: AMBER7" in done.output
    assert "Nothing." in done.output and "1 actions; scores: opened 0" in done.output


def test_the_prompt_of_a_world_is_shown_as_the_model_reads_it(run):
    assert "Please.\n\nOpen the vault.<|im_end|>" in run("play", "world.yaml", "--prompt", given="\n").output
    shown = run("show", "world.yaml").output
    assert "<|im_start|>user\nPlease." in shown and "Looks at a place" in shown


def test_kinds_are_listed_with_the_specs_that_have_one(run, tmp_path):
    listed = json.loads(run("list", "--json").stdout)["data"]
    assert {"python", "text"} <= {one["kind"] for one in listed}


def test_a_spec_without_a_world_is_refused_in_words(run, tmp_path):
    (tmp_path / "none.yaml").write_text("rewards: []\n")
    assert run("test", "none.yaml").exit_code == 2


SERVER = VAULTS.with_name("vault_server.py")


@pytest.mark.parametrize(
    ("kind", "source", "score"),
    [
        ("python", f"{VAULTS}:Vault", "opened"),
        ("mcp", f"{sys.executable} {SERVER} keyed", "score"),
        ("text", "tests.environments.gym_like:Number-v0", "score"),
    ],
)
@pytest.mark.usefixtures("own_lists")
def test_a_world_is_imported_as_a_file_that_can_be_shown(run, kind, source, score):
    done = run("import", kind, source, "--out", "specs/new.yaml", "--json")
    assert done.exit_code == 0, done.output
    written = yaml.safe_load(Path("specs/new.yaml").read_text())
    assert written["env"]["kind"] == kind and written["rewards"][0]["score"] == score
    assert run("show", "specs/new.yaml").exit_code == 0
    again = run("import", kind, source, "--out", "specs/new.yaml")
    assert again.exit_code == 2 and "--force" in again.stderr


@pytest.mark.parametrize(
    ("kind", "source", "words"),
    [
        ("mcp", "npx 'server", "no command: No closing quotation."),
        ("mcp", "", "got an empty SOURCE; expected a url, a file with mcpServers, or a command"),
        ("openenv", "nowhere", 'SOURCE: got "nowhere"; expected text that matches ^https?://.'),
        ("python", "no_name", "SOURCE: got 'no_name'; expected `package.module:name`"),
    ],
)
def test_a_source_that_is_none_is_refused_in_words(run, kind, source, words):
    done = run("import", kind, source)
    assert done.exit_code == 2 and words in done.output


@pytest.mark.usefixtures("own_lists")
def test_the_life_of_an_mcp_server_is_found_by_the_names_of_its_tools(run):
    run("import", "mcp", f"{sys.executable} {SERVER} keyed", "--out", "new.yaml")
    env = yaml.safe_load(Path("new.yaml").read_text())["env"]
    assert env["reset"] == {"tool": "reset_state", "arguments": {"code": "{code}", "seed": "{seed}"}}
    assert (env["score"], env["save"]) == ({"tool": "get_score"}, {"tool": "save_state"})
