"""Events follow from what lies on disk alone: however it is read, and however often."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlf.apps.openrlhf.dataset import JobRow, Purpose, write_row
from rlf.apps.openrlhf.ingest import Ingest
from rlf.apps.openrlhf.job import Job, new_attempt
from rlf.apps.openrlhf.log import JobLogLine, find_error, parse_line
from rlf.apps.openrlhf.settings import IngestSpec
from rlf.apps.openrlhf.spool_pool import Record, to_frames
from rlf.core.redact import Redactor
from rlf.plan import compile as compile_plan
from rlf.spec import load_spec
from rlf.types import (
    CheckpointSaved,
    EvaluationFinished,
    Interrupted,
    Scored,
    StepFinished,
    StopReason,
    Task,
    Trajectory,
)

from .agents import SIZES
from .conftest import SPECS

STEPS, QUESTIONS = 3, 2


def record(purpose, row, sample, step, time):
    task = Task(f"q{row}" if purpose is Purpose.TRAIN else f"h{row}", ())
    trajectory = Trajectory(
        f"{purpose}/{row}/{sample}", task, sample, [1, 2], [False, True], [0.0, -1.0], (), StopReason.ANSWERED, "x"
    )
    index = row if purpose is Purpose.TRAIN else sample
    return Record(purpose, index, sample, step, time, Scored(trajectory, (), float(sample % 2), float(sample % 2)))


def history():
    """What agents write and OpenRLHF prints, in order: (`spool` or `log`, bytes); an evaluation after each step."""
    clock = iter(range(10_000))
    lines = []

    def spool(purpose, row, sample, step):
        lines.append(("spool", to_frames([record(purpose, row, sample, step, float(next(clock)))], Redactor({}))))

    for row in range(QUESTIONS):
        spool(Purpose.SAMPLED, row, 0, 0)
    for step in range(1, STEPS + 1):
        for row in (2 * step, 2 * step + 1):
            for sample in range(4):
                spool(Purpose.TRAIN, row, sample, step)
        lines.append(
            ("log", f"(PPOTrainer pid=1) INFO ✨ Global step {step}: {{'policy_loss': {step}.0, 'kl': nan}}\n".encode())
        )
        for row in range(QUESTIONS):
            spool(Purpose.SAMPLED, row, 0, None)
        lines.append(
            ("log", f"INFO ✨ Evaluation completed in 0:00:01, global_step {step}, eval_metrics: {{}}\n".encode())
        )
    return lines


@pytest.fixture(scope="module")
def spec():
    return compile_plan(load_spec([SPECS / "search.yaml"], ["engine.kind=openrlhf", *SIZES])).spec


def new_job(folder):
    job = Job(folder, folder)
    job.evaluation.parent.mkdir(parents=True)
    rows = [JobRow(Purpose.SAMPLED, 0, Task(f"h{row}", ())) for row in range(QUESTIONS)]
    job.evaluation.write_text("".join(f"{write_row(row)}\n" for row in rows))
    (job.spool / "attempt-1").mkdir(parents=True)
    job.log(1).parent.mkdir(parents=True)
    return job


def test_what_a_stop_cut_off_is_distinguished_from_what_counts(spec, tmp_path):
    job = new_job(tmp_path / "job")
    events = []
    ingest = Ingest(spec, job, new_attempt(job, 1, first_step=1), emit=events.append)
    lines = history()
    last = next(place for place in reversed(range(len(lines))) if b"Global step" in lines[place][1])
    for kind, written in lines[: last - 2]:
        path = job.log(1) if kind == "log" else job.spool / "attempt-1" / "node-1.spool"
        with path.open("ab") as file:
            file.write(written)
    ingest.poll(last=True)
    ingest.tell_left()
    assert [strip_clock(event) for event in events[:-1]] == WHOLE[:-2]
    assert isinstance(events[-1], Interrupted)
    assert events[-1].step == STEPS
    ids = [f"train/{row}/{k}" for row in (2 * STEPS, 2 * STEPS + 1) for k in range(4)]
    assert [scored.trajectory.id for scored in events[-1].trajectories] == ids[:-2]


def strip_clock(event):
    """An event without what only depends on the clock."""
    match event:
        case StepFinished():
            return ("step", event.step, event.metrics["loss/policy"], [s.trajectory.id for s in event.trajectories])
        case EvaluationFinished():
            return ("evaluation", event.step, event.mode, [s.trajectory.id for s in event.trajectories])
    return event


WHOLE = [
    ("evaluation", 0, "sampled", ["sampled/0/0", "sampled/1/0"]),
    *(
        event
        for step in range(1, STEPS + 1)
        for event in (
            ("step", step, float(step), [f"train/{row}/{k}" for row in (2 * step, 2 * step + 1) for k in range(4)]),
            ("evaluation", step, "sampled", ["sampled/0/0", "sampled/1/0"]),
        )
    ),
]


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_however_the_files_grow_the_events_are_the_same(data, spec, tmp_path_factory):
    job = new_job(tmp_path_factory.mktemp("job"))
    events = []
    ingest = Ingest(spec, job, new_attempt(job, 1, first_step=1), emit=lambda event: events.append(strip_clock(event)))
    actors = [job.spool / "attempt-1" / f"node-{number}.spool" for number in range(3)]
    for kind, written in history():
        path = job.log(1) if kind == "log" else data.draw(st.sampled_from(actors))
        with path.open("ab") as file:
            file.write(written)
        if data.draw(st.booleans()):
            ingest.poll()
    ingest.poll()
    assert events == WHOLE
    assert ingest.step == STEPS


@pytest.mark.parametrize(("after", "until"), [(0, 3), (1, 2), (0, 0), (2, 2), (3, 3)])
def test_an_earlier_driver_is_caught_up_with_up_to_the_checkpoint(after, until, spec, tmp_path):
    job = new_job(tmp_path / "job")
    for kind, written in history():
        path = job.log(1) if kind == "log" else job.spool / "attempt-1" / "node-1.spool"
        with path.open("ab") as file:
            file.write(written)
    events = []
    attempt = new_attempt(job, 1, first_step=1)
    Ingest(spec, job, attempt, emit=lambda e: events.append(strip_clock(e)), after=after, until=until).poll()
    steps = [event[1] for event in events if event[0] == "step"]
    evaluations = [event[1] for event in events if event[0] == "evaluation"]
    assert steps == list(range(after + 1, until + 1))
    assert evaluations == list(range(after, until + 1))


@pytest.mark.parametrize("comes_late", [False, True])
def test_a_driver_that_follows_on_misses_nothing_of_files_that_were_removed(comes_late, spec, tmp_path):
    if comes_late:
        ingest = IngestSpec(host="driver", port=8790)
        spec = spec.model_copy(update={"engine": spec.engine.model_copy(update={"ingest": ingest})})
    job = new_job(tmp_path / "job")
    attempt, folder = new_attempt(job, 1, first_step=1), job.received(1) if comes_late else job.spool / "attempt-1"
    folder.mkdir(parents=True, exist_ok=True)
    events, safe = [], []
    first = Ingest(spec, job, attempt, emit=events.append)
    number = 0
    for kind, written in history():
        if kind == "log" and b"Global step 3" in written:
            break
        path = job.log(1) if kind == "log" else folder / f"node-1-{number // 4}.spool"
        number += kind == "spool"
        with path.open("ab") as file:
            file.write(written)
        first.poll()
        first.drop_recorded(lambda: safe.append(len(events)))
    assert first.step == 2
    assert sorted(path.stem for path in folder.iterdir()) == [f"node-1-{left}" for left in (2, 5, 6, 7)]
    assert len(safe) == 3  # what was removed was safe before
    again = []
    second = Ingest(spec, job, attempt, emit=lambda event: again.append(strip_clock(event)), after=2)
    with job.log(1).open("ab") as file:
        file.writelines(written for kind, written in history()[-4:] if kind == "log")
    for kind, written in history()[-4:]:
        if kind == "spool":
            with (folder / "node-1-8.spool").open("ab") as file:
                file.write(written)
    second.poll()
    assert again == WHOLE[-3:]


def test_a_step_whose_line_a_stop_cut_off_is_known_by_its_checkpoint(spec, tmp_path):
    job = new_job(tmp_path / "job")
    folder = job.checkpoints / "_actor" / "global_step2"
    folder.mkdir(parents=True)
    (folder.parent / "latest").write_text("global_step2")
    events = []
    ingest = Ingest(spec, job, new_attempt(job, 1, first_step=1), emit=events.append)
    lines = history()
    lost = next(place for place, (_, written) in enumerate(lines) if b"Global step 2" in written)
    for kind, written in lines[:lost]:
        path = job.log(1) if kind == "log" else job.spool / "attempt-1" / "node-1.spool"
        with path.open("ab") as file:
            file.write(written)
    ingest.poll()
    assert ingest.step == 1
    ingest.poll(last=True)
    ingest.tell_left()
    step, saved = events[-2:]
    assert isinstance(step, StepFinished) and isinstance(saved, CheckpointSaved) and step.step == saved.step == 2
    assert [scored.trajectory.id for scored in step.trajectories] == WHOLE[3][3]
    assert "loss/policy" not in step.metrics and "known by its checkpoint alone" in events[-3].text


def test_a_step_that_is_not_in_the_spool_is_reported_as_a_warning(spec, tmp_path):
    job = new_job(tmp_path / "job")
    job.log(1).write_text("Global step 1: {'policy_loss': 1.0}\n")
    events = []
    Ingest(spec, job, new_attempt(job, 1, first_step=1), emit=events.append).poll()
    assert [event.text.split(":")[0] for event in events] == ["step 1"]
    assert "not in the spool" in events[0].text


def test_a_checkpoint_is_reported_once_after_its_step_and_not_while_it_is_being_removed(spec, tmp_path):
    job = new_job(tmp_path / "job")
    events = []
    ingest = Ingest(spec, job, new_attempt(job, 1, first_step=1), emit=events.append)
    folder = job.checkpoints / "_actor" / "global_step1"
    folder.mkdir(parents=True)
    (folder / "weights.pt").write_text("w")
    removed = folder / "optim_states.pt"
    removed.symlink_to("gone")
    ingest.poll()
    assert events == []
    (folder.parent / "latest").write_text("global_step1")
    ingest.poll()
    assert events == []
    for kind, written in history()[:11]:
        path = job.log(1) if kind == "log" else job.spool / "attempt-1" / "node-1.spool"
        with path.open("ab") as file:
            file.write(written)
    ingest.poll()
    ingest.poll()
    assert not [
        event for event in events if isinstance(event, CheckpointSaved)
    ]  # its last shard went while it was read
    removed.unlink()
    ingest.poll()
    ingest.poll()
    (saved,) = [event for event in events if isinstance(event, CheckpointSaved)]
    assert (saved.step, saved.path) == (1, str(folder))


@pytest.fixture(scope="module")
def spec_apart():
    """The same on a cluster without a shared disk."""
    cluster = ["engine.ray_address=http://head:8265", "engine.output=/mnt", "+engine.ingest.host=here"]
    loaded = load_spec([SPECS / "search.yaml"], ["engine.kind=openrlhf", *SIZES, *cluster])
    return compile_plan(loaded).spec


def late(spec, folder):
    """An ingest that has read OpenRLHF's output of the first step, what it told, and that step's records to come."""
    job, events = new_job(folder), []
    job.received(1).mkdir(parents=True, exist_ok=True)
    lines = history()
    log = next(place for place, (kind, _) in enumerate(lines) if kind == "log")
    job.log(1).write_bytes(lines[log][1])
    ingest = Ingest(spec, job, new_attempt(job, 1, first_step=1), emit=events.append)
    ingest.poll()
    return ingest, events, job.received(1) / "a.spool", [frame for _, frame in lines[QUESTIONS:log]]


def test_a_step_waits_for_what_comes_late_over_http(spec_apart, tmp_path):
    ingest, events, copy, records = late(spec_apart, tmp_path / "r" / "job")
    for frame in records:
        assert (events, ingest.awaits) == ([], "step 1")
        with copy.open("ab") as file:
            file.write(frame)
        ingest.poll()
    assert ([type(event) for event in events], ingest.awaits) == ([StepFinished], "")


def test_what_never_comes_is_counted_in_a_warning(spec_apart, tmp_path):
    ingest, events, copy, records = late(spec_apart, tmp_path / "r" / "job")
    copy.write_bytes(b"".join(records[:-3]))
    ingest.poll(last=True)
    warning, step = events
    assert warning.text.startswith("step 1: 3 of 8 trajectories did not come from the nodes")
    assert len(step.trajectories) == 5


def test_lines_of_steps_and_evaluations_are_read_in_both_modes():
    line = "\x1b[36m(TrainingActor pid=1)\x1b[0m INFO a.py:2] Global step 7: {'vllm_kl': 0.5, 'x': inf, 'kl': -inf}"
    assert parse_line(line) == JobLogLine(7, {"policy/mismatch_kl": 0.5})
    assert parse_line("INFO Eval at step 4: {'eval_sampled_pass1': 0.5}") == JobLogLine(4)
    assert parse_line("Generate samples: 100%") is None


def test_the_words_of_an_error_are_rlfs_own_before_others():
    lines = [
        "ray.exceptions.RayTaskError(ValueError): ray::PPOTrainer.fit()",
        "(RolloutRayActor pid=3) rlf.core.errors.RunError: no space left on the disk of /data.",
        "ray.exceptions.RayTaskError: the rest",
    ]
    assert find_error(lines) == "no space left on the disk of /data."
    assert find_error(["ValueError: no such row"]) == "ValueError: no such row"
    assert find_error(["all is well", json.dumps({})]) is None


def test_a_job_whose_actor_died_says_which_and_what_to_look_for():
    lines = [
        "ray.exceptions.RayTaskError(ActorDiedError): ray::PPOTrainer.fit()",
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
        "\tclass_name: RolloutRayActor",
        "\tpid: 4888",
    ]
    assert "a tool or reward that runs inside it ended it. Write `isolation: process`" in find_error(lines)
    lines[2] = "\tclass_name: PolicyModelActor"
    assert find_error(lines) == "the process of PolicyModelActor died; most often the machine ran out of memory"


def test_what_processes_print_that_lost_another_one_is_not_taken_for_the_cause():
    died = ["ray.exceptions.ActorDiedError: The actor died.", "\tclass_name: RolloutRayActor", "\tpid: 4888"]
    lost = [
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:525] Connection closed by peer [127.0.0.1]:2713",
        "(PolicyModelActor pid=7) torch.distributed.DistBackendError: NCCL communicator was aborted on rank 0",
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace above.",
    ]
    for words in lost:
        assert "the process that samples died" in find_error([*died, words])
        assert find_error([words, "ValueError: no such row"]) == "ValueError: no such row"
        assert find_error([words]) is not None, "where nothing else is there, it is said all the same"


def test_what_ended_vllms_engine_before_it_was_up_is_named_and_not_that_it_ended():
    logged = "(RolloutRayActor pid=3260) (EngineCore pid=3678) ERROR 11-27 04:31:57 [core.py:1374] "
    lines = [
        "(RolloutRayActor pid=3260) (EngineCore pid=3678) ModuleNotFoundError: No module named 'flashinfer'",
        f"{logged}EngineCore failed to start.",
        f"{logged}ModuleNotFoundError: No module named 'flashinfer'",
        "ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task,",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        "(RolloutRayActor pid=3260) RuntimeError: Engine core initialization failed. See root cause above.",
    ]
    for first in (0, 2):
        assert find_error(lines[first:]) == "ModuleNotFoundError: No module named 'flashinfer'"
    memory = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    assert find_error([f"{logged}{memory}", *lines[3:]]) == memory
    assert "initialization failed" in find_error(lines[4:]), "where nothing else is there, it is said all the same"


def test_an_engine_of_vllm_that_died_inside_its_actor_is_named():
    lines = ["(RolloutRayActor pid=7) vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."]
    lines += ["RuntimeError: [gloo/transport/tcp/pair.cc:525] Connection closed by peer [127.0.0.1]:2713"]
    assert "the process that samples died" in find_error(lines)
