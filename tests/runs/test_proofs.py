"""What a model's card says is proven by what lies beside it, and every edit of the folder is named."""

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlf.apps.keep.archive import write_proof
from rlf.apps.keep.export import export_model
from rlf.apps.keep.proof import ClaimState, verify_model
from rlf.cli import app
from rlf.core.identity import hash_path

from .test_edits import a_run

PROVEN = 11
"""Sentences of a model whose reward is made of rules, evaluated greedily too."""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    run_id = a_run(folder / "runs")
    export_model(run_id, folder / "model", runs_folder=folder / "runs", prove=write_proof)
    shutil.rmtree(folder / "runs")  # a stranger has none of it
    return folder / "model"


@pytest.fixture
def model(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "theirs")


@pytest.fixture
def _short_attack(monkeypatch):
    """For edits that other sentences name: combinations of what the reward says of itself are not searched."""
    monkeypatch.setattr("rlf.apps.keep.proof._ATTACK_S", 0.0)


def wrong(folder):
    return [
        f"{claim.sentence} {claim.reason}" for claim in verify_model(folder).claims if claim.state is ClaimState.WRONG
    ]


def write_hashes_again(folder):
    """As somebody does who knows of them."""
    file = folder / "rlf_proof.json"
    proof = json.loads(file.read_text())
    proof["files"] = {name: hash_path(folder / name) for name in proof["files"]}
    file.write_text(json.dumps(proof, indent=1) + "\n")


def test_a_stranger_is_given_the_sentences_that_are_proven_and_the_others(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["verify", str(model)])
    lines = result.stdout.splitlines()
    assert result.exit_code == 0 and [line.split()[0] for line in lines[:-1]] == ["proven"] * PROVEN
    assert lines[-1].startswith(f"proof {hash_path(model / 'rlf_proof.json')}")


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[int(at * (len(data) - 1))] ^= 4
    path.write_bytes(data)


NAMES = ("README.md", "curve.svg", "config.json", "model.safetensors", "tokenizer.json", "rlf_run.json", "rlf_proof.db")


@pytest.mark.usefixtures("_short_attack")
@pytest.mark.parametrize("name", [*NAMES, "rlf_proof.json"])
def test_a_changed_cut_missing_or_added_file_is_named(exported, tmp_path, name, monkeypatch):
    edits = {
        "flipped": lambda file: flip(file, 0.5),
        "cut": lambda file: file.write_bytes(file.read_bytes()[:-1]),
        "gone": Path.unlink,
        "added": lambda file: (file.parent / f"{file.name}.bak").write_text(""),
    }
    # What is flipped is tried on each file, the others in turn: all are found by the hashes; looks at what
    # the files say meet the flipped ones alone.
    others = [*edits][1:]
    for what in ("flipped", others[[*NAMES, "rlf_proof.json"].index(name) % len(others)]):
        change = edits[what]
        folder = shutil.copytree(exported, tmp_path / what, copy_function=os.link if what == "added" else shutil.copy)
        change(folder / name)
        if (name, what) == ("rlf_proof.json", "gone"):
            assert CliRunner().invoke(app, ["verify", str(folder)]).exit_code == 2
        else:
            found = wrong(folder)  # another hash in the list of hashes is named by its file
            assert found and (name in found[0] or name == "rlf_proof.json"), (what, name)
        monkeypatch.setattr("rlf.apps.keep.proof._Looks.find", lambda _: iter(()))


SENTENCES = {
    "success": lambda text: text.replace(" | sampled | ", " | sampled | 9", 1),
    "reward": lambda text: text.replace(
        "| exact_match | rule: exact_match | 1 |", "| exact_match | rule: exact_match | 2 |"
    ),
    "overlap": lambda text: text.replace(", 0 are rows it trained on", ", 0 are rows it was trained on"),
    "head": lambda text: text.replace("chain: link ", "chain: link 1"),
    "base": lambda text: text.replace("builtin:tiny", "builtin:small", 1),
    "packages": lambda text: text.replace("torch ", "torch 9.", 1),
}


@pytest.mark.usefixtures("_short_attack")
@pytest.mark.parametrize("sentence", SENTENCES)
def test_another_sentence_on_the_card_is_wrong_whatever_its_hash(model, sentence):
    text = (model / "README.md").read_text()
    (model / "README.md").write_text(SENTENCES[sentence](text))
    assert (model / "README.md").read_text() != text
    write_hashes_again(model)
    assert wrong(model)[0].startswith("The card has what the lineage holds. README.md is not what its lineage gives")


ROWS = {
    "success": "UPDATE trajectories SET success = 1 - success WHERE phase = 'greedy' AND step = 4 AND k = 0",
    "figures": "UPDATE evaluations SET metrics = json_set(metrics, '$.success', 0.99) WHERE step = 4",
    "plan": "UPDATE runs SET plan = replace(plan, '\"seed\":0', '\"seed\":1')",
    "event": "DELETE FROM events WHERE id = 1",
    "result": "UPDATE tool_calls SET outcome = 'timeout' WHERE rowid = 1",
    "thinned": "DELETE FROM payloads WHERE trajectory_ref = (SELECT max(trajectory_ref) FROM payloads)",
}


@pytest.mark.usefixtures("_short_attack")
@pytest.mark.parametrize("row", ROWS)
def test_an_edited_row_of_the_lineage_is_wrong_whatever_its_hash(model, row):
    with closing(sqlite3.connect(model / "rlf_proof.db", isolation_level=None)) as database:
        assert database.execute(ROWS[row]).rowcount
    write_hashes_again(model)
    assert any(words.startswith("The lineage is as it was written.") for words in wrong(model))


@pytest.mark.usefixtures("_short_attack")
def test_other_weights_and_another_tokenizer_do_not_give_what_was_recorded(model):
    from safetensors.torch import load_file, save_file

    weights = load_file(model / "model.safetensors")
    save_file({name: value * -1 for name, value in weights.items()}, model / "model.safetensors", {"format": "pt"})
    write_hashes_again(model)
    assert any(words.startswith("The model gives these answers.") for words in wrong(model))
