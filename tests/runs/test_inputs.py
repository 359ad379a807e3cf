"""What a run was made of beside its files: tokenizer and chat template of the model, and the packages it ran with."""

import shutil
import subprocess

import pytest

from rlf.builtin.names import builtin_path
from rlf.core import SpecError, hash_path
from rlf.runs import provenance
from rlf.runs.plans import check_spec
from rlf.runs.provenance import code_patch, code_version, model_files, packages

from .conftest import ROOT

SEARCH = ROOT / "specs" / "search.yaml"


def records(plan):
    return {record.role: record for record in model_files(plan)}


def test_tokenizer_and_chat_template_are_named_by_their_own_content(small, tmp_path):
    files, own = small
    shutil.copytree(builtin_path("tiny"), tmp_path / "model")
    plan = check_spec(files, [*own, f"model.path={tmp_path / 'model'}"]).plan
    before, builtin = records(plan), records(check_spec(files, own).plan)
    assert {role: record.sha256 for role, record in before.items()} == {r: b.sha256 for r, b in builtin.items()}
    template = tmp_path / "model/chat_template.jinja"
    template.write_text(template.read_text() + "{# changed #}")
    after = records(plan)
    assert after["tokenizer"] == before["tokenizer"] and after["template"] != before["template"]


def test_a_fetched_model_is_a_node_although_no_file_of_it_is_named(small, tmp_path, monkeypatch):
    files, own = small
    snapshot = tmp_path / "models--me--mine/snapshots/abc"
    shutil.copytree(builtin_path("tiny"), snapshot)
    (tmp_path / "models--me--mine/refs").mkdir()
    (tmp_path / "models--me--mine/refs/main").write_text("abc")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert sorted(records(check_spec(files, [*own, "model.path=me/mine"]).plan)) == ["model", "template", "tokenizer"]


def test_the_files_of_a_reward_are_a_part_of_its_plan_and_of_what_a_run_is_made_from(tmp_path):
    (tmp_path / "units.csv").write_text("m,1\n")
    term = "rewards: [{kind: rule, name: right, rule: exact_match, files: [units.csv]}]\n"
    (tmp_path / "spec.yaml").write_text(f"extends: {SEARCH}\n{term}")
    plan = check_spec([tmp_path / "spec.yaml"], []).plan
    (file,) = [file for file in plan.files if file.path.endswith("units.csv")]
    assert file.role == "data" and file.sha256 == hash_path(tmp_path / "units.csv")
    (tmp_path / "units.csv").write_text("m,2\n")
    assert check_spec([tmp_path / "spec.yaml"], []).plan.plan_hash != plan.plan_hash
    (tmp_path / "units.csv").unlink()
    with pytest.raises(SpecError, match=r"spec.yaml:2:\d+ rewards\[0\].files\[0\]: .*units.csv: no such file"):
        check_spec([tmp_path / "spec.yaml"], [])
    (tmp_path / "units.csv").mkdir()
    with pytest.raises(SpecError, match=r"units.csv is a folder. Name the files in it"):
        check_spec([tmp_path / "spec.yaml"], [])


def test_the_packages_of_a_run_name_those_that_decide_its_numbers():
    assert {"rlf", "torch", "tokenizers", "jsonschema-rs", "math-verify", "jinja2"} <= packages().keys()


def test_the_patch_of_an_edited_checkout_has_files_that_are_in_no_commit(tmp_path, monkeypatch):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    source = tmp_path / "rlf"
    source.mkdir()
    (source / "old.py").write_text("x = 1\n")
    for command in (["init", "-q"], ["add", "rlf"], ["commit", "-qm", "First"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(provenance, "_checkout", lambda: tmp_path)
    assert code_patch() is None and not code_version().endswith("+dirty")
    (source / "new.py").write_text("y = 1\n")
    assert code_version().endswith("+dirty")
    first = code_patch()
    assert first is not None and "+++ b/rlf/new.py\n@@ -0,0 +1,1 @@\n+y = 1" in first
    (source / "new.py").write_text("y = 2\n")
    assert code_patch() not in (None, first)
    (source / "old.py").write_text("x = 2\n")
    both = code_patch()
    subprocess.run([*git, "stash", "-qu"], check=True)
    subprocess.run([*git, "apply", "-"], input=f"{both}\n", text=True, check=True)
    assert (source / "old.py").read_text() == "x = 2\n" and (source / "new.py").read_text() == "y = 2\n"
