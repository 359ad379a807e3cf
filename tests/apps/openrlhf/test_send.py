"""Spool files on a node and their copies on the driver's machine are the same bytes, whatever is lost on the way."""

from __future__ import annotations

import asyncio
import io
import socket
from contextlib import asynccontextmanager
from functools import partial

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlf.apps.openrlhf.job import Job, new_attempt
from rlf.apps.openrlhf.settings import IngestSpec
from rlf.apps.openrlhf.spool import SpoolReader, SpoolWriter
from rlf.apps.openrlhf.transfer import (
    CHUNK_BYTES,
    NotTaken,
    Sender,
    append_at,
    receiving,
    send_files,
    send_from,
    session,
)
from tests.certificates import make_certificate

from .test_spool import record


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A job whose nodes have a disk of their own."""
    monkeypatch.setenv("RLF_INGEST_TOKEN", "a word of both sides")
    return Job(tmp_path / "runs" / "r1" / "job", tmp_path / "nodes" / "r1")


@pytest.fixture
def ingest():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return IngestSpec(host="127.0.0.1", port=probe.getsockname()[1])


def pair(job):
    """A file on a node, and where its copy is."""
    attempt = new_attempt(job, 1, first_step=1)
    folder = job.spool / "attempt-1"
    folder.mkdir(parents=True)
    return attempt, folder / "a.spool", job.received(1) / "a.spool"


def sender(job, ingest, attempt):
    """What makes the senders of an agent's files."""
    return partial(Sender, ingest=ingest, attempt=attempt, certificate=job.certificate)


@given(data=st.data(), whole=st.binary(max_size=60))
def test_however_often_and_whence_bytes_are_sent_the_copy_has_each_once(data, whole, tmp_path_factory):
    copy = tmp_path_factory.mktemp("copy") / "a.spool"
    size = 0
    for _ in range(data.draw(st.integers(0, 8))):
        start = data.draw(st.integers(0, len(whole)))
        end = data.draw(st.integers(start, len(whole)))
        reached = append_at(copy, start, whole[start:end])
        assert reached == (max(size, end) if start <= size else size)
        size = reached
        assert copy.read_bytes() == whole[:size]
    assert append_at(copy, size, whole[size:]) == len(whole)
    assert copy.read_bytes() == whole


def test_records_are_with_the_driver_before_openrlhf_has_them(job, ingest):
    attempt = new_attempt(job, 1, first_step=1)

    async def run():
        async with receiving(ingest, job):
            writer = SpoolWriter(job.spool / "attempt-1", sender=sender(job, ingest, attempt))
            await asyncio.gather(*(writer.append(record(sample)) for sample in range(20)))
            found = SpoolReader(job.received(1)).read()
            await writer.close()
        return found

    assert [item.sample for item in asyncio.run(run())] == list(range(20))


def test_records_go_over_tls_to_the_machine_that_shows_the_certificate_and_to_no_other(job, ingest, tmp_path):
    file, key = make_certificate(tmp_path)
    (tmp_path / "other").mkdir()
    other, other_key = make_certificate(tmp_path / "other")
    secure = ingest.model_copy(update={"certificate": str(file), "key": str(key)})
    impostor = ingest.model_copy(update={"certificate": str(other), "key": str(other_key)})
    job.certificate.parent.mkdir(parents=True)
    job.certificate.write_bytes(file.read_bytes())
    attempt, there, copy = pair(job)
    there.write_bytes(b"whole")

    async def send(server):
        async with receiving(server, job):
            await send_files([there], secure, attempt, job.certificate)

    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        asyncio.run(send(impostor))
    assert not copy.exists()
    asyncio.run(send(secure))
    assert copy.read_bytes() == b"whole"


def test_records_that_come_one_by_one_are_each_taken(job, ingest, monkeypatch):
    """A connection takes long to close: nothing may depend on when that is."""
    attempt, client = new_attempt(job, 1, first_step=1), session

    @asynccontextmanager
    async def slow_to_close(trusted):
        async with client(trusted) as http:
            yield http
        await asyncio.sleep(0.2)

    monkeypatch.setattr("rlf.apps.openrlhf.transfer.session", slow_to_close)

    async def run():
        async with receiving(ingest, job), asyncio.timeout(20):
            writer = SpoolWriter(job.spool / "attempt-1", sender=sender(job, ingest, attempt))
            for sample in range(10):
                await writer.append(record(sample))
                assert len(SpoolReader(job.received(1)).read()) == sample + 1
            await writer.close()

    asyncio.run(run())


def test_a_driver_that_is_away_holds_nobody_up_and_gets_everything_when_it_is_back(job, ingest):
    attempt = new_attempt(job, 1, first_step=1)

    async def run():
        writer = SpoolWriter(job.spool / "attempt-1", sender=sender(job, ingest, attempt))
        async with receiving(ingest, job):
            await writer.append(record(0))
        async with asyncio.timeout(20):
            await asyncio.gather(*(writer.append(record(sample)) for sample in range(1, 9)))
        assert len(SpoolReader(job.received(1)).read()) == 1
        async with receiving(ingest, job), asyncio.timeout(20):
            while len(found := SpoolReader(job.received(1)).read()) < 9:  # noqa: ASYNC110 - another side writes
                await asyncio.sleep(0.05)
        await writer.close()
        return found

    assert [item.sample for item in asyncio.run(run())] == list(range(9))


def test_nodes_remove_files_that_are_taken_and_another_follows(job, ingest, monkeypatch):
    monkeypatch.setattr("rlf.apps.openrlhf.spool._FULL_BYTES", 1)
    attempt = new_attempt(job, 1, first_step=1)

    async def run():
        writer = SpoolWriter(job.spool / "attempt-1", sender=sender(job, ingest, attempt))
        await writer.append(record(0))  # nobody takes it yet
        async with receiving(ingest, job), asyncio.timeout(20):
            reader, found = SpoolReader(job.received(1)), []
            for sample in (1, 2, 3):
                await writer.append(record(sample))
                found += reader.read()
                reader.drop(reader.list_done(1))
            while len(found) < 4:
                await asyncio.sleep(0.05)
                found += reader.read()
            reader.drop(reader.list_done(1))
        await writer.close()
        return found

    assert [item.sample for item in asyncio.run(run())] == [0, 1, 2, 3]
    for folder in (job.spool / "attempt-1", job.received(1)):
        assert [path.stem.rpartition("-")[2] for path in folder.iterdir()] == ["3"]


def test_what_is_left_is_sent_from_where_the_copy_ends(job, ingest):
    attempt, there, copy = pair(job)
    there.write_bytes(bytes(range(256)) * (CHUNK_BYTES // 256) + b"the end\n")
    append_at(copy, 0, there.read_bytes()[:1000])

    async def run():
        async with receiving(ingest, job):
            await send_files([there], ingest, attempt, job.certificate)

    asyncio.run(run())
    assert copy.read_bytes() == there.read_bytes()


@pytest.mark.parametrize(
    ("path", "token", "body", "status"),
    [
        ("r1/1/a.spool?offset=0", "another word", b"x", 401),
        ("r2/1/a.spool?offset=0", None, b"x", 404),
        ("r1/1/..%2fa.spool?offset=0", None, b"x", 404),
        ("r1/1/a.spool", None, b"x", 400),
        ("r1/1/a.spool?offset=-1", None, b"x", 400),
        ("r1/1/a.spool?offset=0", None, bytes(2 * CHUNK_BYTES + 1), 413),
    ],
    ids=["token", "run", "folder", "offset", "negative", "size"],
)
def test_what_is_not_for_this_run_is_not_taken(path, token, body, status, job, ingest, tmp_path):
    async def run():
        async with receiving(ingest, job), session() as http:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            url = f"http://{ingest.host}:{ingest.port}/{path}"
            async with http.post(url, data=io.BytesIO(body), headers=headers) as answer:
                return answer.status

    assert asyncio.run(run()) == status
    assert list(tmp_path.rglob("*.spool")) == []


def test_a_full_disk_of_the_driver_is_reported_to_the_nodes(job, ingest, monkeypatch):
    _, there, _ = pair(job)
    there.write_bytes(b"x")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rlf.apps.openrlhf.transfer.append_at", full)

    async def run():
        async with receiving(ingest, job), session() as http:
            await send_from(http, f"http://{ingest.host}:{ingest.port}/r1/1/a.spool", there, 0)

    with pytest.raises(NotTaken, match="507: cannot be written: No space left on device"):
        asyncio.run(run())


def test_nobody_who_listens_is_a_client_error(job, ingest):
    _, there, _ = pair(job)
    there.write_bytes(b"x")

    async def run():
        async with session() as http:
            await send_from(http, f"http://{ingest.host}:{ingest.port}/r1/1/a.spool", there, 0)

    with pytest.raises(aiohttp.ClientError):
        asyncio.run(run())
