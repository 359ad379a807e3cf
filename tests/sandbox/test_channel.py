"""What a process sends: one numbered answer to each request, cut anyhow, and nothing else, read piece by piece."""

import asyncio
import io
import socket
import struct
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlf.processes.channel import Channel
from rlf.sandbox.guest import wire
from rlf.sandbox.guest.wire import BadFrame, Bounds

BOUNDS = Bounds(1000, 100_000)


class Peer:
    """The other end of a channel, which a test plays."""

    def __init__(self):
        ours, self.end = socket.socketpair()
        self.end.setblocking(False)
        self.faults, self.ends = [], []
        self.channel = Channel(ours, lambda: self.faults.append(1), lambda: self.ends.append(1))

    async def asked(self):
        """Asks, and reads the request. Returns its number and the future answer."""
        answer = await self.channel.ask({"a": 1}, (b"x",), BOUNDS)
        request = wire.read_frame(self.end.recv, Bounds(1000, 1000))
        assert (request.read(), request.blobs) == ({"a": 1}, (b"x",))
        return request.number, answer

    async def send(self, data):
        await asyncio.get_running_loop().sock_sendall(self.end, data)


def played(play):
    async def main():
        peer = Peer()
        try:
            async with asyncio.timeout(60):
                return await play(peer)
        finally:
            peer.channel.close()
            peer.end.close()

    return asyncio.run(main())


WORDS = st.text(max_size=4)
"""Of which eight with their values are within the bounds, however they are written."""


@settings(max_examples=10)  # each has a loop of its own
@given(
    st.dictionaries(WORDS, WORDS | st.integers(-(2**63), 2**63) | st.booleans(), max_size=8),
    st.lists(st.binary(max_size=50), max_size=5),
    st.lists(st.integers(1, 40), min_size=1),
)
def test_a_frame_is_what_was_packed_however_it_is_cut(head, blobs, cuts):
    async def play(peer):
        number, answer = await peer.asked()
        frame = wire.pack(number, head, blobs)
        while frame:
            size = cuts[len(frame) % len(cuts)]
            await peer.send(frame[:size])
            frame = frame[size:]
            peer.channel.read()
        return await answer

    frame = played(play)
    assert (frame.read(), frame.blobs) == (head, tuple(blobs))


@given(st.integers(0, 20), st.integers(0, 40), st.lists(st.sampled_from([0, 1, 2, 255]), max_size=60).map(bytes))
def test_bytes_that_are_no_frame_are_a_bad_one_and_nothing_else(head_bytes, body_bytes, rest):
    data = struct.pack("!QII", 7, head_bytes, body_bytes) + rest
    try:
        frame = wire.read_frame(io.BytesIO(data).read, BOUNDS)
    except BadFrame:
        return
    if frame is not None:
        assert data.startswith(wire.pack(frame.number, frame.head, frame.blobs))
        with suppress(BadFrame):
            frame.read()


def test_two_requests_have_their_own_answers_and_numbers():
    async def play(peer):
        (one, first), (other, second) = await peer.asked(), await peer.asked()
        await peer.send(wire.pack(one, {"n": 1}) + wire.pack(other, {"n": 2}))
        return one != other, (await first).read(), (await second).read(), peer.faults

    assert played(play) == (True, {"n": 1}, {"n": 2}, [])


ANSWER = {
    "another number": lambda number: wire.pack(number ^ 1, {}),
    "text": lambda _: b"Loading model... 100%\n",
    "a head of 2 GB": lambda number: struct.pack("!QII", number, 2_000_000_000, 0),
    "a body of 2 GB": lambda number: struct.pack("!QII", number, 2, 2_000_000_000),
    "lengths that do not add up": lambda number: struct.pack("!QII", number, 2, 5) + b"{}" + bytes([0, 0, 0, 9, 1]),
}


@pytest.mark.parametrize("sent", ANSWER.values(), ids=ANSWER)
def test_anything_but_the_answer_is_a_fault_after_which_nothing_is_read(sent):
    async def play(peer):
        number, answer = await peer.asked()
        await peer.send(sent(number))
        with pytest.raises(BadFrame):
            await answer
        await peer.send(wire.pack(number, {}))
        later = await peer.channel.ask({}, (), BOUNDS)
        with pytest.raises(BadFrame):
            await later
        return peer.faults, peer.ends

    assert played(play) == ([1], [])


@pytest.mark.parametrize("is_at_once", [True, False])
def test_a_second_answer_is_a_fault_and_answers_nothing(is_at_once):
    async def play(peer):
        number, answer = await peer.asked()
        first, second = wire.pack(number, {"n": 1}), wire.pack(number, {"n": 2})
        await peer.send(first + second if is_at_once else first)
        assert (await answer).read() == {"n": 1}
        if not is_at_once:
            await peer.send(second)
            await asyncio.sleep(0.01)
        later = await peer.channel.ask({}, (), BOUNDS)
        with pytest.raises(BadFrame, match="nobody asked for"):
            await later
        return peer.faults

    assert played(play) == [1]


def test_a_process_that_sends_without_end_leaves_the_loop_its_turns_and_takes_no_memory():
    async def play(peer):
        number, answer = await peer.asked()
        await peer.send(struct.pack("!QII", number, 2, 4 + 90_000) + b"{}" + struct.pack("!I", 90_000))
        turns = 0
        tracemalloc.start()

        async def flood():
            while True:
                await peer.send(bytes(500))

        flooding = asyncio.create_task(flood())
        while not answer.done():
            await asyncio.sleep(0)
            turns += 1
        await answer
        while not peer.faults:  # noqa: ASYNC110 - nothing else reports it
            await asyncio.sleep(0)
        flooding.cancel()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return turns > 1, most < 1_000_000, peer.channel.fault is not None

    assert played(play) == (True, True, True)


def test_each_time_that_the_socket_is_ready_one_piece_is_read():
    async def play(peer):
        number, answer = await peer.asked()
        await peer.send(wire.pack(number, {}, [bytes(90_000)]))
        peer.channel.read()
        after_one = answer.done()
        peer.channel.read()
        return after_one, answer.done()

    assert played(play) == (False, True)


def test_the_end_of_a_process_ends_what_waits_also_half_way():
    async def play(peer):
        number, answer = await peer.asked()
        await peer.send(wire.pack(number, {})[:10])
        peer.end.close()
        with pytest.raises(EOFError):
            await answer
        with pytest.raises(EOFError):
            await (await peer.channel.ask({}, (), BOUNDS))
        return peer.faults, peer.ends

    assert played(play) == ([], [1])
