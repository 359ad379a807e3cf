"""Spool files lose nothing that was acknowledged, whatever stops their writer, and tell everything once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlf.core import RunError
from rlf.core.redact import Redactor
from rlf.engines.openrlhf.job.dataset import Purpose
from rlf.engines.openrlhf.spool.records import Record, SpoolReader, SpoolWriter, from_line, to_line
from rlf.types import (
    Attempt,
    CallRecord,
    Message,
    Notice,
    Outcome,
    Score,
    Scored,
    StopReason,
    Task,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
)

TEXTS = st.text(st.characters(), max_size=30)


def record(sample=0, text="found", tokens=3, step=1):
    """A trajectory with one call."""
    result = ToolResult(Outcome.OK, text, attempts=(Attempt(Outcome.OK, 0.1),), structured={"a": [1, None]})
    turn = Turn(1, tokens, tokens, text, calls=(CallRecord(ToolCall("search", {"q": text}), result),))
    trajectory = Trajectory(
        id=f"train/0/{sample}",
        task=Task("q", (Message("user", text),), answer=["Ann"], columns={"deep": {"n": 1}}, tools=("search",)),
        sample_index=sample,
        tokens=list(range(tokens)),
        action_mask=[False] + [True] * (tokens - 1),
        rollout_logprobs=[0.0] + [-0.25] * (tokens - 1),
        turns=(turn,),
        stop=StopReason.ANSWERED,
        answer=text,
    )
    scored = Scored(trajectory, (Score("right", 1.0, 1.0),), reward=1.0, success=1.0)
    return Record(Purpose.TRAIN, 0, sample, step, float(sample), scored)


def write(folder, items):
    async def run():
        writer = SpoolWriter(folder)
        await asyncio.gather(*(writer.append(item) for item in items))
        await writer.close()
        return writer.path

    return asyncio.run(run())


@given(TEXTS, st.integers(2, 40), st.none() | st.integers(0, 9))
def test_a_record_is_read_as_it_was_written(text, tokens, step):
    before = record(text=text, tokens=tokens, step=step)
    after = from_line(to_line(before, Redactor({})))
    assert after == before


def test_a_notice_is_read_as_it_was_written():
    notice = Notice("warning", "the judge answers slowly", {"seconds": 3})
    assert from_line(to_line(notice, Redactor({}))) == notice


def test_a_secret_is_in_no_line(monkeypatch, tmp_path):
    monkeypatch.setenv("SEARCH_KEY", "s3cr3t-value")
    path = write(tmp_path, [record(text="the key is s3cr3t-value.")])
    assert b"s3cr3t" not in path.read_bytes()


def test_every_line_is_read_once(tmp_path):
    reader = SpoolReader(tmp_path)
    path = write(tmp_path, [record(sample) for sample in range(3)])
    assert [item.sample for item in reader.read()] == [0, 1, 2]
    assert reader.read() == []
    with path.open("a") as file:
        file.write(to_line(record(3), Redactor({})) + "\n")
    assert [item.sample for item in reader.read()] == [3]


@given(data=st.data())
def test_however_a_file_grows_the_reader_gets_the_same_lines(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("spool")
    whole = "".join(to_line(record(sample), Redactor({})) + "\n" for sample in range(4)).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    reader, read = SpoolReader(folder), []
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        with (folder / "a.jsonl").open("ab") as file:
            file.write(whole[start:end])
        read += reader.read()
    assert [item.sample for item in read] == [0, 1, 2, 3]


def test_a_torn_last_line_is_left_alone(tmp_path):
    path = write(tmp_path, [record(0), record(1)])
    path.write_bytes(path.read_bytes()[:-20])
    assert [item.sample for item in SpoolReader(tmp_path).read()] == [0]


WRITER = """
import asyncio, itertools, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.engines.openrlhf.test_spool import record
from rlf.engines.openrlhf.spool.records import SpoolWriter
async def main():
    writer = SpoolWriter(Path(sys.argv[1]))
    for sample in itertools.count():
        await writer.append(record(sample, tokens=500))
        print(sample, flush=True)
asyncio.run(main())
"""


def test_what_was_acknowledged_is_there_after_kill_9(tmp_path):
    command = [sys.executable, "-c", WRITER, str(tmp_path), str(Path.cwd())]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    acknowledged = [int(process.stdout.readline()) for _ in range(20)]
    process.send_signal(signal.SIGKILL)
    acknowledged += [int(line) for line in process.stdout]
    process.wait()
    process.stdout.close()
    found = [item.sample for item in SpoolReader(tmp_path).read()]
    assert found[: len(acknowledged)] == acknowledged
    assert found == list(range(len(found)))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk is only imitated by Linux's /dev/full")
def test_a_full_disk_is_told_to_whoever_waits(tmp_path):
    async def run():
        writer = SpoolWriter(tmp_path)
        os.dup2(os.open("/dev/full", os.O_WRONLY), writer._file.fileno())
        try:
            await writer.append(record())
        finally:
            await writer.close()

    with pytest.raises(RunError, match="a trajectory cannot be recorded: No space left on device"):
        asyncio.run(run())
