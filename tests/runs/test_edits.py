"""Every edit of what a run recorded, and everything that is taken away or added, is named where it is."""

import os
import shutil
import signal
import sqlite3
import struct
from contextlib import closing

import pytest
from typer.testing import CliRunner

from rlf.apps.keep.export import export_model
from rlf.apps.keep.forks import fork_checkpoint
from rlf.apps.keep.salvage import salvage
from rlf.apps.keep.tables import ExportFormat, export_runs, import_runs
from rlf.apps.keep.upkeep import drop_unnamed_blobs
from rlf.apps.keep.verification import verify_folder
from rlf.cli import app
from rlf.lineage.blobs import compress, decompress
from rlf.lineage.upkeep import Keep, add_note, add_tags, thin
from rlf.runs.place import open_lineage, open_reader
from rlf.runs.resume import resume
from rlf.runs.start import run
from rlf.types import StepFinished

from .conftest import ROOT, SMALL
from .test_runs import Watch

FEW = [*SMALL, "train.steps=4", "eval.every=2", "eval.limit=4", "checkpoint.every=2"]


def a_run(folder, at=None):
    return run([ROOT / "specs/search.yaml"], FEW, runs_folder=folder, view=Watch(at), command=["rlf"]).run_id


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded") / "runs"
    a_run(folder)
    assert verify_folder(folder).faults == ()
    return folder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was stopped after step 3, with a checkpoint of step 2."""
    folder = tmp_path_factory.mktemp("stopped") / "runs"

    def stop(event):
        if isinstance(event, StepFinished) and event.step == 3:
            signal.raise_signal(signal.SIGINT)

    a_run(folder, stop)
    return folder


@pytest.fixture
def runs(recorded, tmp_path):
    return copy_of(recorded, tmp_path / "runs")


def copy_of(folder, target):
    """The checkpoints are the very files, which nothing here changes."""
    shutil.copytree(folder, target, copy_function=os.link, ignore=shutil.ignore_patterns("rlf.db*", "*.lock"))
    with closing(sqlite3.connect(folder / "rlf.db")) as source, closing(sqlite3.connect(target / "rlf.db")) as copy:
        source.backup(copy)
    return target


def edit(runs, *statements):
    with closing(sqlite3.connect(runs / "rlf.db", isolation_level=None)) as database:
        database.create_function("again", 2, payload_with)
        for statement in statements:
            assert database.execute(statement).rowcount, statement
    return "\n".join(verify_folder(runs).faults)


def payload_with(data, what):
    """A payload with another token, another mask, another log-probability or another text."""
    raw = bytearray(decompress(data))
    (num_tokens,) = struct.unpack_from("<I", raw, 1)
    at = {"token": 5, "mask": 5 + 5 * num_tokens - 1, "logprob": 5 + 9 * num_tokens - 2}
    if what == "text":
        raw = (
            raw.replace(b'"text": "', b'"text": "!', 1)
            if b'"text": "' in raw
            else raw.replace(b'"text":"', b'"text":"!', 1)
        )
    else:
        raw[at[what]] ^= 1
    return compress(bytes(raw))


FIRST = "(SELECT id FROM trajectories WHERE phase = 'train' AND step = 2 AND k = 3)"
CALLED = "(SELECT min(trajectory_ref) FROM tool_calls)"
EDITS = {
    "metrics": (
        "UPDATE steps SET metrics = json_set(metrics, '$.success', 0.9) WHERE step = 2",
        "step 2: its row of metrics",
    ),
    "step_time": ("UPDATE steps SET finished = finished + 1 WHERE step = 2", "step 2: its row of metrics"),
    "step_deleted": ("DELETE FROM steps WHERE step = 2", "step 2: its row of metrics is missing"),
    "step_moved": ("UPDATE steps SET step = 9 WHERE step = 2", "step 9: its row of metrics was added"),
    "trajectories_deleted": (
        "DELETE FROM trajectories WHERE phase = 'train' AND step = 2",
        "step 2: trajectory 7 is missing",
    ),
    "trajectory_deleted": (f"DELETE FROM trajectories WHERE id = {FIRST}", "step 2: trajectory 3 is missing"),
    "trajectory_moved": (f"UPDATE trajectories SET k = 99 WHERE id = {FIRST}", "step 2: trajectory 99 was added"),
    "reward": (
        f"UPDATE trajectories SET reward = 0.5 WHERE id = {FIRST}",
        "step 2: trajectory 3 (train/2/3): its reward is 0.5",
    ),
    "no_reward": (
        f"UPDATE trajectories SET reward = NULL WHERE id = {FIRST}",
        "trajectory 3 (train/2/3): its reward, success",
    ),
    "success": (
        f"UPDATE trajectories SET success = 0.25 WHERE id = {FIRST}",
        "step 2: trajectory 3 (train/2/3): its reward, success",
    ),
    "advantage": (
        f"UPDATE trajectories SET advantage = 0.5 WHERE id = {FIRST}",
        "its advantage is 0.5, its group's rewards give",
    ),
    "no_advantage": (
        f"UPDATE trajectories SET advantage = NULL WHERE id = {FIRST}",
        "trajectory 3 (train/2/3): its reward, success",
    ),
    "gold": (f"UPDATE trajectories SET gold = '[\"Rome\"]' WHERE id = {FIRST}", "its gold is"),
    "answer": (
        f"UPDATE trajectories SET answer = 'Rome' WHERE id = {FIRST}",
        "trajectory 3 (train/2/3): its reward, success",
    ),
    "stop": (
        f"UPDATE trajectories SET stop = 'cancelled' WHERE id = {FIRST}",
        "trajectory 3 (train/2/3): its reward, success",
    ),
    "task": (
        f"UPDATE trajectories SET task_id = 'other' WHERE id = {FIRST}",
        "trajectory 3 (train/2/3): its reward, success",
    ),
    "score_value": (f"UPDATE scores SET value = 0.5 WHERE trajectory_ref = {FIRST}", "its scores add up to 0.5"),
    "score_weight": (f"UPDATE scores SET weight = 0.5 WHERE trajectory_ref = {FIRST}", "(train/2/3): its scores"),
    "score_reason": (f"UPDATE scores SET reason = 'equal' WHERE trajectory_ref = {FIRST}", "(train/2/3): its scores"),
    "score_state": (f"UPDATE scores SET state = 'gated' WHERE trajectory_ref = {FIRST}", "(train/2/3): its scores"),
    "judge_usage": (
        f"UPDATE scores SET usage = '{{\"num_tokens\": 5}}' WHERE trajectory_ref = {FIRST}",
        "(train/2/3): its scores",
    ),
    "score_deleted": (f"DELETE FROM scores WHERE trajectory_ref = {FIRST}", "(train/2/3): its scores"),
    "reward_and_score": (
        f"UPDATE trajectories SET reward = 0.5 WHERE id = {FIRST}",
        f"UPDATE scores SET value = 0.5 WHERE trajectory_ref = {FIRST}",
        "(train/2/3): its scores",
    ),
    "tokens": (
        f"UPDATE payloads SET data = again(data, 'token') WHERE trajectory_ref = {FIRST}",
        "(train/2/3): its tokens",
    ),
    "mask": (
        f"UPDATE payloads SET data = again(data, 'mask') WHERE trajectory_ref = {FIRST}",
        "(train/2/3): its tokens",
    ),
    "logprobs": (
        f"UPDATE payloads SET data = again(data, 'logprob') WHERE trajectory_ref = {FIRST}",
        "(train/2/3): its tokens",
    ),
    "turns": (
        f"UPDATE payloads SET data = again(data, 'text') WHERE trajectory_ref = {FIRST}",
        "(train/2/3): its tokens",
    ),
    "payload_deleted": (f"DELETE FROM payloads WHERE trajectory_ref = {FIRST}", "what hangs on it is missing"),
    "messages": (
        "UPDATE trajectories SET task_sha256 = (SELECT max(task_sha256) FROM trajectories WHERE step = 1)"
        f" WHERE id = {FIRST}",
        "trajectory 3 (train/2/3): its reward, success",
    ),
    "call_result": (
        f"UPDATE tool_calls SET text = 'x', text_sha256 = NULL WHERE trajectory_ref = {CALLED}",
        "its tool calls",
    ),
    "call_arguments": (f"UPDATE tool_calls SET arguments = '{{}}' WHERE trajectory_ref = {CALLED}", "its tool calls"),
    "call_outcome": (f"UPDATE tool_calls SET outcome = 'timeout' WHERE trajectory_ref = {CALLED}", "its tool calls"),
    "call_deleted": (f"DELETE FROM tool_calls WHERE trajectory_ref = {CALLED}", "its tool calls"),
    "failure_added": (
        f"INSERT INTO parse_failures VALUES ({FIRST}, 0, 0, 'bad_json', 'm', 'r', 0, 0)",
        "(train/2/3): its tool calls or parse failures",
    ),
    "sums": ("UPDATE collections SET num_tokens = 1 WHERE phase = 'train' AND step = 2", "step 2: its row of sums"),
    "sums_deleted": ("DELETE FROM collections WHERE phase = 'sampled' AND step = 4", "sampled step 4: its row of sums"),
    "tool_totals": ("UPDATE tool_totals SET num_calls = num_calls + 1 WHERE step = 3", "step 3: its row of sums"),
    "cost": ("INSERT INTO costs SELECT id, 'train', 'tool', 'search', '{}' FROM runs", "the costs of its tools"),
    "plan": (
        "UPDATE runs SET plan = replace(plan, '\"temperature\":1.0', '\"temperature\":0.9')",
        "its plan has the hash",
    ),
    "plan_hash": ("UPDATE runs SET plan_hash = 'x' || substr(plan_hash, 2)", "its plan's hash"),
    "seed": ("UPDATE runs SET seed = 7", "its seed is 7, its plan's is 0"),
    "name": ("UPDATE runs SET name = 'better'", "its name, start, engine or seed"),
    "started": ("UPDATE runs SET started = started - 9", "its name, start, engine or seed"),
    "packages": ("UPDATE runs SET packages = '{}'", "its code, packages"),
    "code": ("UPDATE runs SET code_version = '1'", "its code, packages"),
    "parent": ("UPDATE runs SET parent_id = 'x', parent_kind = 'fork'", "its parent"),
    "file": ("UPDATE files SET sha256 = 'x' WHERE role = 'tool'", "the list of its files"),
    "file_deleted": ("DELETE FROM files WHERE role = 'data'", "the list of its files"),
    "status": ("UPDATE runs SET status = 'failed', error = 'x'", "its status, end, error or last step"),
    "last_step": ("UPDATE runs SET last_step = 9", "its status, end, error or last step"),
    "event": ("UPDATE events SET text = 'all well' WHERE id = 1", "event 1 changed"),
    "event_level": ("UPDATE events SET level = 'info', data = '{}' WHERE id = 1", "event 1 changed"),
    "event_deleted": ("DELETE FROM events WHERE id = 1", "event 1 is missing"),
    "event_added": ("INSERT INTO events SELECT 99, id, 1.0, 'info', 'x', '{}' FROM runs", "an event was added"),
    "checkpoint": ("UPDATE checkpoints SET sha256 = 'x' WHERE step = 2", "the checkpoint of step 2 changed"),
    "checkpoint_time": ("UPDATE checkpoints SET saved = 1.0 WHERE step = 2", "the checkpoint of step 2 changed"),
    "checkpoint_dropped": ("UPDATE checkpoints SET dropped = 1.0 WHERE step = 2", "whether it is kept"),
    "checkpoint_deleted": ("DELETE FROM checkpoints WHERE step = 2", "the checkpoint of step 2 is missing"),
    "change_added": (
        "INSERT INTO changes SELECT id, 1, 'data', 'x', 'a', 'b', NULL, 1.0 FROM runs",
        "accepted changes",
    ),
    "export_added": (
        "INSERT INTO exports SELECT id, 'x', 'huggingface', 3, 'a', 1.0 FROM runs",
        "the export x was added",
    ),
    "evaluation": (
        "UPDATE evaluations SET metrics = json_set(metrics, '$.success', 0.99) WHERE step = 4 AND mode = 'greedy'",
        "greedy step 4: its row of metrics",
    ),
    "evaluation_deleted": ("DELETE FROM evaluations WHERE step = 0", "sampled step 0: its row of metrics is missing"),
    "evaluation_row": (
        "UPDATE trajectories SET success = 1.0 WHERE phase = 'greedy' AND step = 4 AND k = 0 AND success = 0.0"
        " OR success = 1.0 AND phase = 'greedy' AND step = 4 AND k = 0",
        "UPDATE trajectories SET success = 0.5 WHERE phase = 'greedy' AND step = 4 AND k = 0",
        "greedy step 4: trajectory 0",
    ),
    "link": ("UPDATE links SET place = '{}' WHERE kind = 'step'", "its chain is broken: link"),
    "link_digests": (
        "UPDATE links SET digests = x'00' WHERE kind = 'step' AND place LIKE '%2%'",
        "its chain is broken: link",
    ),
    "link_deleted": ("DELETE FROM links WHERE number = 3", "its chain is broken: link 3 is missing"),
    "first_link_deleted": ("DELETE FROM links WHERE number = 1", "its chain is broken: its beginning is missing"),
    "chain_deleted": ("DELETE FROM links", "its chain is broken: its beginning is missing"),
    "last_links_deleted": (
        "DELETE FROM links WHERE number > (SELECT max(number) - 3 FROM links)",
        "was added: no link",
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_named_where_it_is(runs, name):
    *statements, words = EDITS[name]
    assert words in (found := edit(runs, *statements)), found or "all whole"


@pytest.mark.parametrize("algorithm", ["remax", "gdpo"])
def test_advantages_of_greedy_rollouts_and_of_terms_follow_from_the_rows(tmp_path, algorithm):
    changes = [f"train.algorithm={algorithm}", "train.steps=2", "eval.limit=2"]
    if algorithm == "gdpo":
        term = "{kind: rule, name: well_formed, rule: tool_format, weight: 0.1}"
        changes.append(f"rewards=[{{use: {ROOT}/reward_specs/exact_match.yaml}}, {term}]")
    runs = tmp_path / "runs"
    run([ROOT / "specs/search.yaml"], [*FEW, *changes], runs_folder=runs, view=Watch(), command=["rlf"])
    assert verify_folder(runs).faults == ()
    somewhere = "WHERE id = (SELECT min(id) FROM trajectories WHERE advantage IS NOT NULL)"
    assert "its advantage is 5, its group's rewards give" in edit(
        runs, f"UPDATE trajectories SET advantage = 5.0 {somewhere}"
    )


def links_of(runs):
    with closing(sqlite3.connect(runs / "rlf.db")) as database:
        return [kind for (kind,) in database.execute("SELECT kind FROM links ORDER BY run_id, number")]


@pytest.mark.parametrize("killed", [False, True])
def test_a_resume_continues_the_chain_and_what_it_repeats_is_as_it_wrote_it(stopped, tmp_path, killed):
    runs = copy_of(stopped, tmp_path / "runs")
    if killed:
        with closing(sqlite3.connect(runs / "rlf.db", isolation_level=None)) as database:
            database.execute("DELETE FROM links WHERE kind = 'end'")
            database.execute("UPDATE runs SET status = 'running', finished = NULL, error = NULL")
    assert verify_folder(runs).faults == ()
    num_before = len(links_of(runs))
    resume("latest", runs_folder=runs, view=Watch(), command=["rlf"], from_step=2, take_over=killed)
    kinds = links_of(runs)
    assert "resumed" in kinds[num_before:] and kinds.count("step") == 5 and kinds[-1] == "end"
    assert verify_folder(runs).faults == ()
    assert "step 3: trajectory 3 (train/4/3): its reward" in edit(
        runs, "UPDATE trajectories SET success = 0.25 WHERE phase = 'train' AND step = 3 AND k = 3"
    )


def test_a_fork_names_the_link_of_its_parent_that_it_began_at(runs):
    fork_checkpoint("latest@2", [], ["train.steps=4"], runs_folder=runs, view=Watch(), command=["rlf"])
    assert verify_folder(runs).faults == ()
    with closing(sqlite3.connect(runs / "rlf.db", isolation_level=None)) as database:
        parent, head = database.execute(
            "SELECT place ->> 'parent', place ->> 'head' FROM links WHERE place LIKE '%parent%'"
        ).fetchone()
        database.execute("DELETE FROM links WHERE run_id = ? AND sha256 = ?", [parent, head])
    assert any(
        f"its parent {parent} is another one than it was made from" in fault for fault in verify_folder(runs).faults
    )


def test_export_import_thinning_marks_and_models_leave_a_whole_chain(runs, tmp_path):
    with open_reader(runs) as reader:
        run_id = reader.list_runs()[0].record.id
        head = reader.link(run_id).sha256
        export_runs(reader, [run_id], tmp_path / "one.db", ExportFormat.RLF)
    import_runs(str(tmp_path / "one.db"), [], tmp_path / "other")
    with closing(sqlite3.connect(tmp_path / "one.db")) as archive:
        assert f'"heads": {{"{run_id}": "{head}"}}' in archive.execute("SELECT manifest FROM rlf_archive").fetchone()[0]
    card = (export_model(run_id, tmp_path / "model", runs_folder=runs).folder / "README.md").read_text()
    assert f"Head of its lineage's chain: link {len(links_of(runs)) - 1}, `{head}`" in card
    with open_lineage(runs) as store:
        add_tags(store, run_id, ("best",))
        add_note(store, run_id, "the one")
        assert thin(store, run_id, Keep(last=1)) == 24
        drop_unnamed_blobs(store)
    assert links_of(runs)[-2:] == ["exported", "thinned"]
    for folder in (runs, tmp_path / "other"):
        assert [fault for fault in verify_folder(folder).faults if "the checkpoint" not in fault] == []
    found = edit(runs, "DELETE FROM scores", "DELETE FROM exports")
    assert "step 4: trajectory 0" in found and "step 3" not in found and "the export model is missing" in found


def test_what_a_salvage_lost_is_a_remark_and_an_edit_of_the_rest_a_fault(runs, tmp_path):
    with closing(sqlite3.connect(runs / "rlf.db", isolation_level=None)) as database:
        database.execute(f"DELETE FROM payloads WHERE trajectory_ref = {FIRST}")
        database.execute("DELETE FROM steps WHERE step = 1")
    saved = copy_of(runs, tmp_path / "saved")
    (saved / "rlf.db").unlink()
    salvage(runs / "rlf.db", saved / "rlf.db")
    found = verify_folder(saved)
    assert found.faults == () and "salvaged: 2 parts of it are missing" in found.remarks[0]
    assert "(train/3/0): its reward" in edit(saved, "UPDATE trajectories SET success = 0.25 WHERE k = 4 AND step = 2")


def test_a_run_from_before_there_were_chains_is_no_fault_and_said_to_be_one(stopped, tmp_path):
    older = copy_of(stopped, tmp_path / "runs")
    with closing(sqlite3.connect(older / "rlf.db", isolation_level=None)) as database:
        database.execute("DROP TABLE links")
        database.execute("UPDATE rlf_version SET version_num = '0008'")
    found = verify_folder(older)
    assert found.faults == () and len(found.remarks) == 1 and ": written before chains: " in found.remarks[0]
    resume("latest", runs_folder=older, view=Watch(), command=["rlf"], from_step=2)
    assert verify_folder(older).faults == ()
    assert "step 4: trajectory 3" in edit(older, "UPDATE trajectories SET success = 0.25 WHERE step = 4 AND k = 3")
    assert "its scores add up" in edit(older, "UPDATE trajectories SET reward = 0.5 WHERE step = 1 AND k = 3")


def test_verify_prints_the_heads(runs):
    result = CliRunner().invoke(app, ["runs", "verify", "--head", "--runs", str(runs)])
    with open_reader(runs) as reader:
        run_id = reader.list_runs()[0].record.id
        head = reader.link(run_id)
    assert result.exit_code == 0 and f"{run_id} link {head.number} {head.sha256}\n1 run, all whole" in result.stdout
