"""Functions as tools: import, signature, source."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rlf.core import RlfError
from rlf.core.callables import is_async, load_callable, source_hash
from rlf.tools import Executor
from rlf.tools.kinds.python import PythonTool
from rlf.tools.python.inference import signature_complaints


def schema(*properties: str, required: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {} for name in properties}, "required": list(required)}


def one(query: str) -> str:
    return query


def optional(query: str, limit: int = 3) -> str:
    return query * limit


def anything(**arguments: Any) -> str:
    return str(arguments)


def positional(query: str, /) -> str:
    return query


@pytest.mark.parametrize(
    ("function", "of", "words"),
    [
        (one, schema("query", required=("query",)), []),
        (optional, schema("query", "limit", required=("query",)), []),
        (optional, schema("query", required=("query",)), []),
        (anything, schema("x", "y"), []),
        (one, schema("query"), ["list 'query' under `required`"]),
        (one, schema(), ["add it to `properties` and `required`"]),
        (optional, schema("query", "limits", required=("query",)), ["does not take; did you mean 'limit'?"]),
        (positional, schema("query", required=("query",)), []),
        (dict.fromkeys, schema("query"), ["does not take", "'iterable' has no default"]),
    ],
)
def test_a_signature_is_compared_with_the_schema(function: Any, of: dict[str, Any], words: list[str]) -> None:
    complaints = signature_complaints(function, of)
    assert len(complaints) == len(words), complaints
    for complaint, word in zip(complaints, words, strict=True):
        assert word in complaint


def test_a_misfit_is_refused_before_the_first_call(declare: Any) -> None:
    wrong = declare("echo", schema("quer", required=("quer",)))
    with pytest.raises(RlfError, match=r"tool 'echo': inputSchema has 'quer'.* did you mean 'query'"):
        asyncio.run(Executor([wrong]).__aenter__())


def test_an_async_function_on_a_thread_is_refused(declare: Any) -> None:
    with pytest.raises(RlfError, match="isolation: auto"):
        asyncio.run(Executor([declare("echo", isolation="thread")]).__aenter__())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_module:f", "no_such_module.*Install the package"),
        ("json:JSONDecoderr", "did you mean 'JSONDecoder'"),
        ("json:__name__", "is a str, which cannot be called"),
        ("no/such/file.py:f", "no file"),
    ],
)
def test_an_import_that_fails_names_the_callable_and_the_fix(name: str, words: str) -> None:
    with pytest.raises(RlfError, match=words) as caught:
        load_callable(name)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("body", ["import nothing_of_that_name", "def f(:", "raise SystemExit(4)", "1 / 0"])
def test_a_file_that_breaks_on_import_is_the_users_to_fix(tmp_path: Path, body: str) -> None:
    (tmp_path / "broken.py").write_text(body)
    with pytest.raises(RlfError, match=r"broken\.py:1\)\. (Correct it there|Run `pip install nothing_of_that_name`)"):
        load_callable(f"{tmp_path}/broken.py:f")


def test_a_method_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "things.py").write_text("class Box:\n    @staticmethod\n    def get(query):\n        return query\n")
    assert load_callable(f"{tmp_path}/things.py:Box.get")("x") == "x"


def test_the_source_hash_follows_the_file_and_the_name(tmp_path: Path) -> None:
    for folder, body in [("a", "def f(): ...\ndef g(): ..."), ("b", "def f(): ...\ndef g(): ..."), ("c", "def f(): 1")]:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tool.py").write_text(body)
    hashes = {key: PythonTool(callable=f"{tmp_path}/{key[0]}/tool.py:{key[1]}").source_hash() for key in ("af", "bf")}
    other = PythonTool(callable=f"{tmp_path}/a/tool.py:g").source_hash()
    changed = PythonTool(callable=f"{tmp_path}/c/tool.py:f").source_hash()
    assert hashes["af"] == hashes["bf"]
    assert len({hashes["af"], other, changed}) == 3


def test_what_has_no_source_is_hashed_by_name() -> None:
    assert source_hash(len) == source_hash(len) != source_hash(abs)


def test_asynchrony_is_seen_through_partials_and_callable_objects() -> None:
    from functools import partial

    class Tool:
        async def __call__(self, query: str) -> str:
            return query

    async def plain(query: str) -> str:
        return query

    assert is_async(plain)
    assert is_async(partial(plain, query="x"))
    assert is_async(Tool())
    assert not is_async(one)
