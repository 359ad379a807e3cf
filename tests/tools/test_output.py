"""What of a tool's answer reaches the model: budgets, pictures, schemas, secrets, coerced arguments."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from typing import Any

import pytest

from rlf.core.images import read_image_header
from rlf.core.redact import Redactor
from rlf.tools import Executor, ToolDeclaration
from rlf.tools.kind import Limits
from rlf.tools.results import MAX_KEPT_BYTES, OutputBudget
from rlf.types import Outcome, ToolCall, ToolResult

CANARY = "canary-4711-aviary"


def one(name: str, **schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {name: schema or {"type": "string"}}, "required": [name]}


def call(declaration: ToolDeclaration, arguments: Any, **keys: Any) -> ToolResult:
    async def story() -> ToolResult:
        async with Executor([declaration], **keys) as executor:
            return await executor.invoke(ToolCall(declaration.name, arguments), trajectory_id="t")

    return asyncio.run(story())


def by_words(text: str) -> int:
    return len(text.split())


@pytest.mark.parametrize("count", [by_words, len, lambda text: 4 * len(text)], ids=["words", "chars", "4 a char"])
def test_a_result_stays_within_its_tokens_and_says_what_is_missing(count: Any) -> None:
    text = " ".join(f"word{number}" for number in range(5000))
    shown = OutputBudget(Limits(max_output_chars=100_000, max_output_tokens=200), count).show(text)
    assert count(shown.text) <= 200
    assert shown.truncated
    assert "characters left out" in shown.text
    assert (shown.sha256, shown.original) == (hashlib.sha256(text.encode()).hexdigest(), text)


def test_what_is_within_both_budgets_is_shown_as_it_is_and_counts_no_token() -> None:
    def never(text: str) -> int:
        raise AssertionError("counted")

    shown = OutputBudget(Limits(max_output_tokens=50), never).show("é" * 25)
    assert shown == ("é" * 25, False, 50, "", None)


def test_of_a_very_large_result_the_hash_alone_is_kept() -> None:
    text = "x" * (MAX_KEPT_BYTES + 1)
    shown = OutputBudget(Limits(), None).show(text)
    assert (len(shown.text) <= 4000, shown.size_bytes, shown.original) == (True, MAX_KEPT_BYTES + 1, None)
    assert shown.sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_a_secret_that_the_cut_would_halve_is_struck_and_long_results_are_not_read_whole() -> None:
    seen: list[int] = []

    def redact(text: str) -> str:
        seen.append(len(text))
        return text.replace(CANARY, "[redacted]")

    budget = OutputBudget(Limits(max_output_chars=1000), None, redact)
    for offset in range(600, 700):  # the head ends somewhere within the secret
        text = "x" * offset + CANARY + "y" * MAX_KEPT_BYTES + CANARY + "z" * (offset - 380)
        shown = budget.show(text).text
        assert len(shown) <= 1000
        assert "can" not in shown
        assert "ary" not in shown
    assert max(seen) < 10_000


def test_a_picture_is_reported_in_words_to_models_that_see_none(declare: Any) -> None:
    result = call(declare("picture", one("kind")), {"kind": "small"})
    assert (result.outcome, result.text) == (Outcome.OK, "a picture\n[image 1: image/png, 64x48]")
    assert result.images[0].mime_type == "image/png"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("bomb", "image 1 of 100000x100000 pixels, more than the 16000000 allowed"),
        ("heavy", "bytes, more than the 5000000 allowed"),
        ("lying", "image 1 that says image/jpeg and is image/png"),
        ("invalid", "image 1 that is not a PNG, JPEG, GIF or WebP file"),
    ],
)
def test_a_bad_picture_is_rejected(declare: Any, kind: str, words: str) -> None:
    result = call(declare("picture", one("kind")), {"kind": kind})
    assert result.outcome is Outcome.OUTPUT_REJECTED
    assert words in result.text
    assert result.images == ()


def test_more_pictures_than_allowed_are_rejected(declare: Any) -> None:
    result = call(declare("picture", one("kind"), limits={"max_images": 0}), {"kind": "small"})
    assert (result.outcome, "1 images, more than the 0 allowed" in result.text) == (Outcome.OUTPUT_REJECTED, True)


HEADERS = {
    "png": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\0\0\0\0\x80", ("image/png", 256, 128)),
    "gif": (b"GIF89a\x40\x01\xf0\x00", ("image/gif", 320, 240)),
    "jpeg": (b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xc0\0\x11\x08\0\x78\0\xa0\x03", ("image/jpeg", 160, 120)),
    "webp": (b"RIFF\0\0\0\0WEBPVP8X\n\0\0\0\0\0\0\0\x3f\x01\0\xef\0\0", ("image/webp", 320, 240)),
    "cut short": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0", None),
    "jpeg without a frame": (b"\xff\xd8\xff\xe0\0\x04ab", None),
    "empty": (b"", None),
    "text": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", None),
}


@pytest.mark.parametrize(("data", "header"), HEADERS.values(), ids=HEADERS.keys())
def test_a_header_says_type_and_size(data: bytes, header: tuple[str, int, int] | None) -> None:
    assert read_image_header(data) == header


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
def test_headers_of_files_that_pillow_writes_are_read(kind: str) -> None:
    import io

    Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    for lossless in (False, True):
        file = io.BytesIO()
        Image.new("RGB", (123, 45)).save(file, kind, lossless=lossless)
        found = read_image_header(file.getvalue())
        assert found is not None
        assert (found.width, found.height, found.mime_type) == (123, 45, f"image/{kind.lower()}")


NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(
    ("function", "arguments", "outcome", "words"),
    [
        ("structured", {"what": "right"}, Outcome.OK, "text"),
        ("structured", {"what": "wrong"}, Outcome.OUTPUT_REJECTED, "the result breaks its schema"),
        ("echo", {"query": '{"n": 1}'}, Outcome.OK, '{"n": 1}'),
        ("echo", {"query": '{"n": "x"}'}, Outcome.OUTPUT_REJECTED, "the result breaks its schema"),
        ("echo", {"query": "no JSON"}, Outcome.OUTPUT_REJECTED, "the result is not JSON"),
        ("echo", {"query": "[" * 100_000}, Outcome.OUTPUT_REJECTED, "the result is not JSON"),
    ],
)
def test_a_result_that_breaks_the_output_schema_is_rejected(
    declare: Any, function: str, arguments: dict[str, Any], outcome: Outcome, words: str
) -> None:
    declaration = declare(function, one(next(iter(arguments))), outputSchema=NUMBER)
    result = call(declaration, arguments)
    assert result.outcome is outcome
    assert words in result.text
    assert (result.structured == {"n": 3}) == (arguments == {"what": "right"})


WIDE = {
    "type": "object",
    "properties": {
        "whole": {"type": "integer"},
        "real": {"type": "number"},
        "flag": {"type": "boolean"},
        "things": {"type": "array"},
        "options": {"type": "object"},
        "words": {"type": "string"},
        "perhaps": {"type": ["integer", "null"]},
        "code": {"type": ["integer", "string"]},
    },
}


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"whole": "3"}, {"whole": 3}),
        ({"real": "-2.5e1"}, {"real": -25.0}),
        ({"flag": "True"}, {"flag": True}),
        ({"things": "[1]"}, {"things": [1]}),
        ({"options": '{"a": 1}'}, {"options": {"a": 1}}),
        ('{"whole": "3"}', {"whole": 3}),
        ({"whole": "3.5"}, None),
        ({"perhaps": "3"}, {"perhaps": 3}),
        ({"perhaps": "three"}, None),
        ({"whole": "3", "code": "7"}, {"whole": 3, "code": "7"}),
        ({"whole": "three"}, None),
        ({"whole": "1" * 5000}, None),
        ({"whole": " 3"}, None),
        ({"whole": True}, None),
        ({"flag": "1"}, None),
        ({"words": 3}, None),
        ({"things": "[1"}, None),
        ({"whole": "3", "unknown": 1}, None),
        ("[1]", None),
        (None, None),
    ],
)
def test_safe_coercion_reads_strings_that_say_exactly_what_is_asked(given: Any, read: dict[str, Any] | None) -> None:
    from rlf.tools.validate import ArgumentCheck

    assert ArgumentCheck(WIDE).coerced(given) == read


def test_coercion_is_declared_and_recorded(declare: Any) -> None:
    schema = one("query") | {"properties": {"query": {"type": "string"}, "limit": {"type": "integer"}}}
    arguments = {"query": "a", "limit": "3"}
    refused = call(declare("repeat", schema), arguments)
    assert refused.outcome is Outcome.INVALID_ARGUMENTS
    taken = call(declare("repeat", schema, coerce="safe"), arguments)
    assert (taken.outcome, taken.text, taken.coerced) == (Outcome.OK, "aaa", True)
    plain = call(declare("repeat", schema, coerce="safe"), {"query": "a", "limit": 3})
    assert (plain.text, plain.coerced) == ("aaa", False)


@pytest.mark.parametrize("how", ["exception", "echo"])
def test_a_secret_that_a_tool_lets_out_reaches_neither_model_nor_log_nor_recording(
    declare: Any, how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    monkeypatch.setenv("CANARY_API_KEY", CANARY)
    redact = Redactor({"CANARY_API_KEY": CANARY}).text
    file = tmp_path / "calls.jsonl"
    limits = {"breaker": {"failures": 1}, "retries": 1}
    declaration = declare("leak", one("how", enum=["exception", "echo"]), limits=limits, idempotent=True)
    told: list[str] = []
    keys = {"redact": redact, "record": file, "notify": lambda _, text: told.append(text)}
    with caplog.at_level(logging.DEBUG):
        result = call(declaration, {"how": how}, **keys)
        refused = call(declaration, {"how": CANARY}, **keys)
    assert "[redacted]" in result.text
    assert refused.outcome is Outcome.INVALID_ARGUMENTS
    seen = f"{result} {refused} {caplog.text} {told} {file.read_text()}"
    assert CANARY not in seen
    assert file.read_text().count("[redacted]") >= 2  # the result, and the argument of the second call


def test_used_up_tokens_hold_the_next_call_back(declare: Any, toolbox: Any) -> None:
    limits = {"rate": {"tokens_per_minute": 90}}

    async def story() -> int:
        async with Executor([declare("spend", limits=limits)]) as executor:
            calls = [executor.invoke(ToolCall("spend", {"query": str(n)}), trajectory_id="t") for n in range(2)]
            results = [await one for one in calls]
            assert results[0].usage == {"prompt_tokens": 30, "completion_tokens": 20, "cost_usd": 5}
            late = asyncio.create_task(executor.invoke(ToolCall("spend", {"query": "late"}), trajectory_id="t"))
            await asyncio.sleep(0.1)  # 100 tokens used of 90: a minute's wait
            late.cancel()
            await asyncio.wait([late])
            return len(toolbox.CALLS)

    assert asyncio.run(story()) == 2
