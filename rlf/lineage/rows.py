"""Events as rows: from the shared nouns to the values of the tables, without secrets; long contents go to `Blobs`."""

from __future__ import annotations

import base64
import json
import math
import re
import struct
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import zstandard
from pydantic_core import from_json

from rlf.core.errors import RlfError
from rlf.core.redact import Redactor
from rlf.lineage.blobs import Blobs, Content, compress, decompress
from rlf.lineage.chain import CALL, FAILURE, HEAD, SCORE, Values, digest_parts, plain_number
from rlf.lineage.migrate import LAST_EXPORTER
from rlf.types import CallRecord, InnerTurn, Message, ParseFailure, Scored, ScoreState, Task, ToolResult, Trajectory
from rlf.types.written import FIRST_VERSION, NUMBERS, VERSION, find_results, write

# The part of a trajectory that no other table has, packed: tokens, action mask, sampler logprobs, turns; and its task.
#
# Layout, little-endian, compressed with zstd: version u8, number of tokens T u32, tokens u32[T], action_mask bool[T],
# rollout_logprobs float32[T], then JSON: the trajectory's written form without what has columns. Calls and parse
# failures are rows of their own. A task is a content, shared by its rollouts and named by its hash: its bytes never
# change.

_HEAD = struct.Struct("<BI")
_ZLIB = 0x78
"""First byte of a payload of version 1, which no content of zstd has."""
_COLUMNS = ("id", "task", "sample_index", "stop", "answer", "duration_s", "images")
_ELSEWHERE = dict.fromkeys((*NUMBERS, *_COLUMNS), True) | {"turns": {"__all__": {"calls", "failures"}}}


def encode(trajectory: Trajectory, redactor: Redactor) -> bytes:
    """Packs a trajectory; logprobs are kept as float32, the precision they were sampled in."""
    num_tokens = len(trajectory.tokens)
    parts = (
        _HEAD.pack(VERSION, num_tokens),
        _pack("I", trajectory.tokens),
        bytes(trajectory.action_mask),  # of a list of booleans, ten times as fast as with a look at each
        _pack("f", trajectory.rollout_logprobs),
        redactor.json(write(trajectory, without=_ELSEWHERE)).encode(),
    )
    return compress(b"".join(parts))


def _pack(code: str, numbers: Sequence[float]) -> bytes:
    """Numbers in four bytes each, little-endian."""
    packed = numbers[:] if isinstance(numbers, array) and numbers.typecode == code else array(code, numbers)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def decode_payload(data: bytes) -> dict[str, Any]:
    """The written form of what `encode` packed, bit for bit. Raises RlfError for one from before the first version."""
    num_tokens, raw = _open_payload(data, decompress)
    body = struct.unpack_from(f"<{num_tokens}I{num_tokens}?{num_tokens}f", raw, _HEAD.size)
    known: dict[str, Any] = json.loads(raw[_HEAD.size + 9 * num_tokens :])
    numbers = [list(body[place * num_tokens : (place + 1) * num_tokens]) for place in range(len(NUMBERS))]
    return known | dict(zip(NUMBERS, numbers, strict=True))


def _open_payload(data: bytes, decompress: Callable[[bytes], bytes]) -> tuple[int, bytes]:
    """The number of tokens, and the bytes as they were before they were compressed."""
    raw = b"\1" if data[0] == _ZLIB else decompress(data)
    if raw[0] < FIRST_VERSION:
        raise RlfError(
            "the trajectory was written by a checkout before the first version of rlf, which this one does not read. "
            f"With commit {LAST_EXPORTER} write it by `rlf runs export RUN --format jsonl --out FOLDER`."
        )
    version, num_tokens = _HEAD.unpack_from(raw)
    assert version <= VERSION, f"payload of version {version}, expected at most {VERSION}"
    return num_tokens, raw


class PayloadReader:
    """Reads parts of payloads, five times as fast as `decode_payload`. For one thread."""

    def __init__(self) -> None:
        self._decompressor = zstandard.ZstdDecompressor()

    def num_tokens(self, data: bytes) -> int:
        """Of a payload that is read to its end. Raises any exception where the bytes are damaged."""
        num_tokens, raw = _open_payload(data, self._decompressor.decompress)
        from_json(raw[_HEAD.size + 9 * num_tokens :])
        return num_tokens

    def action_mask(self, data: bytes) -> bytes:
        """A byte for each token. Raises any exception where the bytes are damaged."""
        num_tokens, raw = _open_payload(data, self._decompressor.decompress)
        return raw[_HEAD.size + 4 * num_tokens : _HEAD.size + 5 * num_tokens]


def encode_task(task: Task, redactor: Redactor) -> bytes:
    """A task as JSON: the same bytes for the same row of a dataset."""
    values = {
        "messages": [[message.role, message.content, *message.images] for message in task.messages],
        "answer": task.answer,
        "columns": task.columns,
        "tools": task.tools,
    }
    return redactor.json(values if task.cluster is None else values | {"cluster": task.cluster}).encode()


def decode_task(data: bytes, task_id: str, kind: str | None) -> Task:
    """The task that `encode_task` wrote."""
    known = json.loads(data)
    messages = tuple(Message(role, content, tuple(images)) for role, content, *images in known["messages"])
    tools = None if known["tools"] is None else tuple(known["tools"])
    return Task(task_id, messages, known["answer"], kind, known["columns"], tools, known.get("cluster"))


# The turns inside of an agent's call as JSON. Images are contents of their own, which the JSON names.

# The stored JSON names contents by hash, and is searched without being decoded.
_NAMED = re.compile(r'"sha256:([0-9a-f]{64})"')


def inner_json(turns: Sequence[InnerTurn], redactor: Redactor, blobs: Blobs) -> str | None:
    """The turns; None where there are none."""
    found = write(turns)
    for result in find_results([{"inner": found}]):
        for image in result.get("images", ()):
            image["data"] = f"sha256:{blobs.keep(base64.b64decode(image['data']))}"
    return redactor.json(found) if found else None


def read_inner(text: str, blobs: Mapping[str, bytes]) -> Any:
    """The written form of what `inner_json` wrote."""
    return json.loads(_NAMED.sub(lambda name: json.dumps(base64.b64encode(blobs[name[1]]).decode()), text))


def inner_blobs(text: str | None) -> Iterator[str]:
    """The contents that the JSON names."""
    return (match[1] for match in _NAMED.finditer(text or ""))


def inner_names(turns: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The names of the tools that were called in what `inner_json` wrote."""
    for turn in turns:
        for made in turn.get("calls", ()):
            yield made["call"]["name"]
            yield from inner_names(made["result"].get("inner", ()))


Row = dict[str, Any]


def metrics_json(metrics: Mapping[str, float], redactor: Redactor) -> str:
    """Metrics as JSON that any database reads: NaN is null, an infinity a string."""
    return redactor.json({name: _plain_number(float(value)) for name, value in metrics.items()})


def _plain_number(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return str(value) if math.isinf(value) else value


def trajectory_row(scored: Scored, task_sha256: str, redactor: Redactor) -> Row:
    """The trajectory's own row without its place (run, phase, step, k) and its advantage."""
    trajectory, task = scored.trajectory, scored.trajectory.task
    return {
        "trajectory_id": redactor.text(trajectory.id),
        "task_id": redactor.text(task.id),
        "sample_index": trajectory.sample_index,
        "kind": redactor.optional(task.kind),
        "stop": trajectory.stop.value,
        "error": redactor.optional(trajectory.error),
        "answer": redactor.optional(trajectory.answer),
        "gold": redactor.json(task.answer),
        "reward": plain_number(scored.reward),
        "success": plain_number(scored.success),
        "num_tokens": len(trajectory.tokens),
        "num_sampled": trajectory.num_sampled,
        "num_turns": len(trajectory.turns),
        "num_calls": len(trajectory.calls),
        "duration_s": plain_number(trajectory.duration_s),
        "task_sha256": task_sha256,
    }


def collection_row(trajectories: Sequence[Scored]) -> Row:
    """Totals of the trajectories of one step or evaluation."""
    all_of = [scored.trajectory for scored in trajectories]
    return {
        "num_trajectories": len(all_of),
        "num_tokens": sum(len(trajectory.tokens) for trajectory in all_of),
        "num_sampled": sum(trajectory.num_sampled for trajectory in all_of),
        "num_calls": sum(len(trajectory.calls) for trajectory in all_of),
    }


def tool_total_rows(trajectories: Sequence[Scored], redactor: Redactor) -> list[Row]:
    """Totals of the calls of one step or evaluation, by tool and outcome."""
    results: dict[tuple[str, str], list[ToolResult]] = {}
    for scored in trajectories:
        for record in scored.trajectory.calls:
            results.setdefault((redactor.text(record.call.name), record.result.outcome), []).append(record.result)
    return [
        {
            "name": name,
            "outcome": outcome,
            "num_calls": len(found),
            "num_cached": sum(result.cached for result in found),
            "num_truncated": sum(result.truncated for result in found),
            "run_s": math.fsum(result.run_s for result in found),
            "max_run_s": max(result.run_s for result in found),
            "queue_s": math.fsum(result.queue_s for result in found),
        }
        for (name, outcome), found in results.items()
    ]


def score_rows(scored: Scored, redactor: Redactor) -> list[Row]:
    """One row per reward term; the ordinary state, of most rows, is null."""
    rows = []
    for position, score in enumerate(scored.scores):
        row: Row = {"position": position} | {name: plain_number(getattr(score, name)) for name in _SCORE}
        row |= {"term": redactor.text(score.term), "reason": redactor.text(score.reason)}
        row["state"] = None if score.state is ScoreState.SCORED else score.state.value
        row["turn_values"] = None if score.turn_values is None else json.dumps(score.turn_values)
        rows.append(row | {"usage": None if score.usage is None else json.dumps(write(score.usage))})
    return rows


def call_rows(trajectory: Trajectory, redactor: Redactor, blobs: Blobs) -> list[Row]:
    """One row per tool call, named by its turn and its position there."""
    return [
        {"turn": number, "position": position} | _call_row(record, redactor, blobs)
        for number, turn in enumerate(trajectory.turns)
        for position, record in enumerate(turn.calls)
    ]


def _call_row(record: CallRecord, redactor: Redactor, blobs: Blobs) -> Row:
    """A result's written form by columns: contents by their names, JSON as text."""
    result = record.result
    row: Row = {name: plain_number(getattr(result, name)) for name in ("queue_s", "run_s")}
    text, text_sha256 = blobs.keep_long(redactor.text(result.text))
    whole = None if result.original is None else blobs.keep(redactor.text(result.original).encode())
    images = [[image.mime_type, blobs.keep(image.data)] for image in result.images]
    return row | {
        "outcome": result.outcome.value,
        "cached": int(result.cached),
        "truncated": int(result.truncated),
        "size_bytes": result.size_bytes,
        "isolation": str(result.isolation),
        "coerced": 1 if result.coerced else None,
        "attempts": redactor.json(write(result.attempts)),
        "usage": redactor.json(result.usage) if result.usage else None,
        "structured": None if result.structured is None else redactor.json(result.structured),
        "name": redactor.text(record.call.name),
        "arguments": redactor.json(record.call.arguments),
        "text": text,
        "text_sha256": text_sha256,
        "original_sha256": whole or result.sha256 or None,
        "images": json.dumps(images) if images else None,
        "inner": inner_json(result.inner, redactor, blobs),
    }


_SCORE = ("value", "weight", "elapsed_s")


def failure_rows(trajectory: Trajectory, redactor: Redactor) -> list[Row]:
    """One row per parse failure, named by its turn and its position there."""
    return [
        {"turn": number, "position": position} | _failure_row(failure, redactor)
        for number, turn in enumerate(trajectory.turns)
        for position, failure in enumerate(turn.failures)
    ]


def _failure_row(failure: ParseFailure, redactor: Redactor) -> Row:
    texts = {"message": redactor.text(failure.message), "raw": redactor.text(failure.raw)}
    kind, structural = failure.kind.value, int(failure.structural)
    return {"kind": kind, "raw_start": failure.position, "structural": structural} | texts


# A scored trajectory as the rows that the lineage stores, made before its place there is known, in any process. Their
# values are of the exact types that databases give back, as the chain digests them.

_pick_head, _pick_call, _pick_score, _pick_failure = (
    itemgetter(*names) for names in (HEAD, CALL.columns, SCORE.columns, FAILURE.columns)
)


@dataclass(frozen=True, slots=True)
class EncodedTrajectory:
    """Rows without their place, which the recorder adds: run, phase, step, k, the trajectory's number."""

    head: Values
    """The trajectory's own row, without its advantage."""
    payload: bytes
    calls: Sequence[Values]
    scores: Sequence[Values]
    failures: Sequence[Values]
    digests: bytes
    """Of all but the row, as the chain has them."""
    contents: Mapping[str, Content]
    """What the rows refer to and is compressed already, by name."""


def encode_trajectory(
    scored: Scored, redactor: Redactor, blobs: Blobs, task_sha256: str | None = None
) -> EncodedTrajectory:
    """The rows of one trajectory; long contents go to `blobs`.

    Args:
        task_sha256: the name of the task's content, where that is kept already.
    """
    trajectory = scored.trajectory
    name = task_sha256 or blobs.keep(encode_task(trajectory.task, redactor))
    payload = encode(trajectory, redactor)
    calls = list(map(_pick_call, call_rows(trajectory, redactor, blobs)))
    scores = list(map(_pick_score, score_rows(scored, redactor)))
    failures = list(map(_pick_failure, failure_rows(trajectory, redactor)))
    return EncodedTrajectory(
        head=_pick_head(trajectory_row(scored, name, redactor)),
        payload=payload,
        calls=calls,
        scores=scores,
        failures=failures,
        digests=digest_parts(payload, scores, calls, failures),
        contents={},
    )


def encode_whole(scored: Scored, redactor: Redactor) -> EncodedTrajectory:
    """The rows of one trajectory with their contents, to be written by another process."""
    blobs = Blobs()
    return replace(encode_trajectory(scored, redactor, blobs), contents=blobs.compressed())
