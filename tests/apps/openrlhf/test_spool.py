"""Spool files lose nothing that was acknowledged, whatever stops their writer, and tell everything once."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import math
import os
import re
import signal
import struct
import subprocess
import sys
import zlib
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from rlf.apps.openrlhf.dataset import Purpose
from rlf.apps.openrlhf.spool import SpoolReader, SpoolWriter
from rlf.apps.openrlhf.spool_pool import (
    FilesOpened,
    Record,
    SpoolPool,
    cut,
    pack_all,
    read_frames,
    read_span,
    to_frames,
    unpack_answer,
)
from rlf.core import RunError
from rlf.core.redact import Redactor
from rlf.lineage.rows import encode_whole
from rlf.types import (
    Attempt,
    CallRecord,
    Image,
    InnerCall,
    InnerTurn,
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
from rlf.types.written import write as written

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
@example("\ud800", 2, None)
def test_a_record_is_read_as_it_was_written_but_for_halves_of_characters(text, tokens, step):
    frame = to_frames([record(text=text, tokens=tokens, step=step)], Redactor({}))
    whole = re.sub("[\ud800-\udfff]", "\ufffd", text)
    assert list(read_frames(frame)) == [(record(text=whole, tokens=tokens, step=step), len(frame))]


def test_a_notice_and_names_of_files_are_read_as_they_were_written():
    notice = Notice("warning", "the judge answers slowly", {"seconds": 3})
    for line in (notice, FilesOpened((("/a/tool.py", "/a/rows.csv"), ("", "/b")))):
        ((found, _),) = read_frames(to_frames([line], Redactor({})))
        assert found == line


def test_a_secret_is_in_no_record(monkeypatch, tmp_path):
    monkeypatch.setenv("SEARCH_KEY", "s3cr3t-value")
    path = write(tmp_path, [record(text="the key is s3cr3t-value.")])
    ((found, _),) = read_frames(path.read_bytes())
    assert found.scored.trajectory.answer == "the key is [redacted]."


def test_every_record_is_read_once(tmp_path):
    reader = SpoolReader(tmp_path)
    path = write(tmp_path, [record(sample) for sample in range(3)])
    assert [item.sample for item in reader.read()] == [0, 1, 2]
    assert reader.read() == []
    with path.open("ab") as file:
        file.write(to_frames([record(3)], Redactor({})))
    assert [item.sample for item in reader.read()] == [3]


@given(data=st.data())
def test_however_a_file_grows_the_reader_gets_the_same_records(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("spool")
    whole = b"".join(to_frames(list(map(record, samples)), Redactor({})) for samples in ([0], [1, 2], [3]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    reader, read = SpoolReader(folder), []
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        with (folder / "a.spool").open("ab") as file:
            file.write(whole[start:end])
        read += reader.read()
    assert [item.sample for item in read] == [0, 1, 2, 3]


def test_a_torn_last_record_is_left_alone(tmp_path):
    path = write(tmp_path, [record(0)])
    path.write_bytes(path.read_bytes() + to_frames([record(1), record(2)], Redactor({}))[:-20])
    assert [item.sample for item in SpoolReader(tmp_path).read()] == [0]


def test_numbers_are_the_very_same_bits_also_where_nothing_was_measured(tmp_path):
    before = record(tokens=4)
    numbers = {"tokens": [0, 151_935, 7, 2**31 - 1], "rollout_logprobs": [0.0, -0.1, math.nan, -math.pi]}
    before = replace(before, scored=replace(before.scored, trajectory=replace(before.scored.trajectory, **numbers)))
    ((after, _),) = read_frames(to_frames([before], Redactor({})))
    assert after.scored.trajectory.tokens == numbers["tokens"]
    assert struct.pack("4d", *after.scored.trajectory.rollout_logprobs) == struct.pack(
        "4d", *numbers["rollout_logprobs"]
    )


def test_a_damaged_record_is_reported_and_never_read(tmp_path):
    frame = to_frames([record()], Redactor({}))
    damaged = bytearray(frame)
    damaged[-1] ^= 1
    (tmp_path / "a.spool").write_bytes(frame + damaged + frame)
    with pytest.raises(
        RunError, match=rf"a\.spool: the record that begins at byte {len(frame)} cannot be read: its che"
    ):
        SpoolReader(tmp_path).read()


def test_a_record_of_an_unknown_version_is_reported_with_its_file(tmp_path):
    for version in (2, 99):
        head = [version, "train", 0, 0, 1, 0.0, False]
        line = json.dumps({"head": head, "num_tokens": 0, "scored": {"trajectory": {}}})
        payload = zstandard.compress(line.encode() + b"\n")
        (tmp_path / "a.spool").write_bytes(struct.pack("<II", len(payload), zlib.crc32(payload)) + payload)
        with pytest.raises(RunError, match=rf"a\.spool.*version {version}; this rlf reads versions 3 to"):
            SpoolReader(tmp_path).read()


def test_zeros_behind_the_last_record_are_left_alone(tmp_path):
    path = write(tmp_path, [record(0)])
    path.write_bytes(path.read_bytes() + bytes(4096))
    assert [item.sample for item in SpoolReader(tmp_path).read()] == [0]


def test_a_record_behind_a_write_that_failed_is_read(tmp_path, monkeypatch):
    class Filling:
        """A file of a disk that is full after some bytes of the first write."""

        def __init__(self, file):
            self.file, self.room = file, 30

        def write(self, data):
            if not self.room:
                self.room = 1_000_000
                raise OSError(errno.ENOSPC, "No space left on device")
            written = self.file.write(data[: self.room])
            self.room -= written
            return written

        def __getattr__(self, name):
            return getattr(self.file, name)

    async def run():
        writer = SpoolWriter(tmp_path)
        writer._file = Filling(writer._file)
        with pytest.raises(RunError, match="No space left"):
            await writer.append(record(0))
        await writer.append(record(1))
        await writer.close()

    asyncio.run(run())
    assert [item.sample for item in SpoolReader(tmp_path).read()] == [1]


def test_a_file_that_has_not_grown_is_not_opened(tmp_path, monkeypatch):
    write(tmp_path, [record()])
    reader = SpoolReader(tmp_path)
    reader.read()
    monkeypatch.setattr(Path, "open", lambda *_: pytest.fail("it is opened"))
    assert reader.read() == []


def test_a_record_of_2100_tokens_takes_less_than_a_third_of_its_json(tmp_path):
    tokens = [hash(str(number)) % 150_000 for number in range(2_100)]
    trajectory = replace(record(tokens=2_100).scored.trajectory, tokens=tokens)
    before = replace(record(), scored=replace(record().scored, trajectory=trajectory))
    assert len(to_frames([before], Redactor({}))) < len(json.dumps(written(before.scored))) / 3


WRITER = """
import asyncio, itertools, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.apps.openrlhf.test_spool import record
from rlf.apps.openrlhf.spool import SpoolWriter
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
def test_a_full_disk_is_reported_to_whoever_waits(tmp_path):
    async def run():
        writer = SpoolWriter(tmp_path)
        os.dup2(os.open("/dev/full", os.O_WRONLY), writer._file.fileno())
        try:
            await writer.append(record())
        finally:
            await writer.close()

    with pytest.raises(RunError, match="a trajectory cannot be recorded: No space left on device"):
        asyncio.run(run())


def test_what_cannot_be_written_is_raised_where_it_is_waited_for_and_stops_no_other(tmp_path):
    huge = record(0)
    huge = replace(huge, scored=replace(huge.scored, trajectory=replace(huge.scored.trajectory, tokens=[2**31] * 3)))

    async def run():
        writer = SpoolWriter(tmp_path)
        async with asyncio.timeout(30):
            with pytest.raises(OverflowError):
                await writer.append(huge)
            await writer.append(record(1))
        await writer.close()

    asyncio.run(run())
    assert [item.sample for item in SpoolReader(tmp_path).read()] == [1]


def test_records_are_the_same_from_other_processes_with_what_the_lineage_stores_of_them(tmp_path):
    items = [record(sample, text=f"found {sample}", tokens=5) for sample in range(40)]
    write(tmp_path, [*items[:20], Notice("info", "half", {})])
    write(tmp_path, items[20:])
    encode = partial(encode_whole, redactor=Redactor({}))
    here = SpoolReader(tmp_path, SpoolPool(encode)).read()
    pool = SpoolPool(encode, num_processes=1)
    with closing(pool), patch("rlf.apps.openrlhf.spool_pool._HERE_BYTES", 0):
        there = SpoolReader(tmp_path, pool).read()
        damaged = tmp_path / "damaged"
        damaged.mkdir()
        (damaged / "a.spool").write_bytes(to_frames([items[0]], Redactor({}))[:-1] + b"x")
        with pytest.raises(RunError, match=r"a\.spool: the record that begins at byte 0 cannot be read"):
            SpoolReader(damaged, pool).read()
        os.kill(pool.pids[0], signal.SIGKILL)
        with pytest.raises(RunError, match="was killed"):
            SpoolReader(tmp_path, pool).read()
    assert len(here) == 41
    assert [getattr(line, "encoded", None) for line in there] == [getattr(line, "encoded", None) for line in here]
    assert there == here
    plain = [replace(line, scored=_with_lists(line.scored)) if isinstance(line, Record) else line for line in there]
    assert plain == SpoolReader(tmp_path).read()


@pytest.mark.parametrize("collects", [True, False])
def test_reading_leaves_the_search_for_garbage_as_it_was(collects):
    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        assert unpack_answer(pack_all([])) == []
        assert gc.isenabled() is collects
    finally:
        (gc.enable if before else gc.disable)()


def _with_lists(scored):
    trajectory = scored.trajectory
    numbers = {
        "tokens": list(trajectory.tokens),
        "action_mask": [bool(sampled) for sampled in trajectory.action_mask],
        "rollout_logprobs": list(trajectory.rollout_logprobs),
    }
    return replace(scored, trajectory=replace(trajectory, **numbers))


def test_spans_are_whole_frames_and_all_of_them(tmp_path):
    frames = [to_frames([record(sample)], Redactor({})) for sample in range(9)]
    path = tmp_path / "a.spool"
    path.write_bytes(b"".join(frames) + frames[0][:-1])
    with patch("rlf.apps.openrlhf.spool_pool._SPAN_BYTES", len(frames[0]) + 1):
        spans = cut(path, 0, path.stat().st_size)
    assert [line.sample for span in spans for line in read_span(span, None)] == list(range(9))
    assert 1 < len(spans) < 9


@pytest.mark.parametrize(("gather_s", "num_played"), [(3600.0, 0), (0.1, 1)])
def test_records_gather_for_a_while_and_only_while_others_are_played(tmp_path, monkeypatch, gather_s, num_played):
    syncs = []
    monkeypatch.setattr("rlf.apps.openrlhf.spool.os.fsync", syncs.append)
    monkeypatch.setattr("rlf.apps.openrlhf.spool._GATHER_S", gather_s)

    async def run():
        writer = SpoolWriter(tmp_path)
        writer.num_played = 2
        first = asyncio.ensure_future(writer.append(record(0)))
        await asyncio.sleep(0.01)
        assert not first.done()
        writer.num_played = num_played
        await asyncio.gather(first, writer.append(record(1)))
        assert len(syncs) == 1
        writer.num_played = 1
        writer.tell(Notice("info", "three", {}))
        await writer.close()

    asyncio.run(run())
    assert len(SpoolReader(tmp_path).read()) == 3


def test_images_are_written_only_where_an_agents_own_calls_have_them():
    image = Image(b"\x89PNG plain text", "image/png")
    inner = InnerTurn(
        "seen", calls=(InnerCall("a", ToolCall("look", {}), ToolResult(Outcome.OK, "", images=(image,))),)
    )
    for text in ("readable", "\ud800"):
        made = record(text=text)
        turn = made.scored.trajectory.turns[0]
        result = replace(turn.calls[0].result, images=(image,), inner=(inner,))
        turn = replace(turn, calls=(replace(turn.calls[0], result=result),))
        trajectory = replace(made.scored.trajectory, turns=(turn,), images=("a.png",))
        frame = to_frames([replace(made, scored=replace(made.scored, trajectory=trajectory))], Redactor({}))
        ((found, _),) = read_frames(frame)
        result = found.scored.trajectory.calls[0].result
        assert result.inner == (inner,) and not result.images and not found.scored.trajectory.images


def test_a_file_goes_once_another_follows_it_and_its_steps_are_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr("rlf.apps.openrlhf.spool._FULL_BYTES", 1)

    async def run():
        writer, reader = SpoolWriter(tmp_path), SpoolReader(tmp_path)
        for step in (1, 1, 2, None, 3):
            purpose = Purpose.TRAIN if step else Purpose.SAMPLED
            await writer.append(replace(record(step=step), purpose=purpose))
        found = [line.step for line in reader.read()]
        left = []
        for step in (0, 1, 3):
            reader.drop(reader.list_done(step))
            left.append(sorted(path.stem.rpartition("-")[2] for path in tmp_path.iterdir()))
        await writer.append(record(step=3))
        more = [line.step for line in reader.read()]
        reader.drop(reader.list_done(3))
        await writer.close()
        return found, left, more, sorted(path.stem.rpartition("-")[2] for path in tmp_path.iterdir())

    found, left, more, at_last = asyncio.run(run())
    assert found == [1, 1, 2, None, 3]
    assert left == [["0", "1", "2", "3", "4"], ["2", "3", "4"], ["3", "4"]]  # 3: an evaluation; 4: may grow
    assert (more, at_last) == ([3], ["3", "5"])
