"""`response_format` holds an answer to a JSON schema, and its log-probabilities are those of what may follow."""

from __future__ import annotations

import asyncio
import json
import math
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from rlf.builtin.names import builtin_path
from rlf.chat.encoding import load_tokenizer

from .agents import adversaries
from .agents.test_sessions import play
from .served import QUESTION, SEARCH, Ask, asking, events_of

pytest.importorskip("llguidance")

TOWN = {
    "type": "object",
    "properties": {
        "town": {"enum": ["Tukkes", "Rinkux"]},
        "sure": {"type": "boolean"},
        "km": {"type": "integer", "minimum": 0, "maximum": 999},
    },
    "required": ["town", "sure"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "town", "schema": TOWN, "strict": True}}


def fits(text: str) -> bool:
    value = json.loads(text)
    known = {"town", "sure"} <= value.keys() <= {"town", "sure", "km"}
    return known and value["town"] in ("Tukkes", "Rinkux") and type(value["sure"]) is bool


def of_schema(schema: dict[str, Any]) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}


NESTED: dict[str, Any] = {"type": "string"}
for _ in range(80):
    NESTED = {"type": "object", "properties": {"a": NESTED}, "required": ["a"]}


def body(**keys: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": QUESTION, "response_format": FORM, "max_tokens": 60, "seed": 1, **keys}


def test_answers_fit_the_schema_in_every_dialect_streamed_or_not() -> None:
    async def story(ask: Ask) -> None:
        free = body(response_format=None)
        (_, alone), (status, four), (_, beside), (_, greedy) = await asyncio.gather(
            ask("/v1/chat/completions", free),
            ask("/v1/chat/completions", body(n=4, temperature=2)),
            ask("/v1/chat/completions", free),
            ask("/v1/chat/completions", body(temperature=0)),
        )
        assert status == 200 and alone["choices"] == beside["choices"]
        answers = [choice["message"]["content"] for choice in [*four["choices"], *greedy["choices"]]]
        assert all(map(fits, answers)), answers
        _, again = await ask("/v1/chat/completions", body(temperature=0))
        assert again["choices"] == greedy["choices"]
        _, text = await ask("/v1/chat/completions", body(temperature=0, stream=True))
        pieces = [choice["delta"].get("content") or "" for event in events_of(text) for choice in event["choices"]]
        assert "".join(pieces) == answers[-1]
        _, found = await ask("/v1/chat/completions", body(response_format={"type": "json_object"}, temperature=0))
        whole = found["choices"][0]
        assert whole["message"]["content"].startswith("{") and whole["finish_reason"] in ("stop", "length")
        text_format = {"format": {"type": "json_schema", "name": "town", "schema": TOWN, "strict": True}}
        _, found = await ask("/v1/responses", {"model": "tiny", "input": QUESTION, "text": text_format})
        assert fits(found["output"][0]["content"][0]["text"])
        config = {"format": {"type": "json_schema", "schema": TOWN}}
        asked = {"model": "tiny", "messages": QUESTION, "max_tokens": 60, "output_config": config}
        _, found = await ask("/v1/messages", asked)
        assert fits(found["content"][0]["text"])

    asking(story)


def test_log_probabilities_are_those_among_what_may_follow() -> None:
    async def story(ask: Ask) -> None:
        _, found = await ask("/v1/chat/completions", body(logprobs=True, top_logprobs=20, temperature=1.5))
        tokens = found["choices"][0]["logprobs"]["content"]
        for token in tokens:
            top: Mapping[str, float] = {each["token"]: each["logprob"] for each in token["top_logprobs"]}
            assert all(map(math.isfinite, top.values()))
            if len(top) < 20:  # all that may follow
                assert math.isclose(sum(map(math.exp, top.values())), 1.0, abs_tol=1e-4)
        assert sum(len(token["top_logprobs"]) == 1 and token["logprob"] == 0 for token in tokens) >= 3

    asking(story)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"response_format": {"type": "grammar"}}, "expected `json_object`"),
        ({"response_format": {"type": "json_schema"}}, "with a schema"),
        (of_schema({"type": "nope"}), "nope"),
        (of_schema({"$ref": "#/x"}), "x"),
        (of_schema(NESTED), "recursion limit"),
        (of_schema({"type": "integer", "minimum": 5, "maximum": 3}), "Unsatisfiable"),
        ({"tools": [SEARCH]}, "name the schema as a tool's parameters"),
        ({"ignore_eos": True}, "ignore_eos"),
    ],
)
def test_a_form_that_cannot_be_followed_is_refused_with_the_reason(keys: dict[str, Any], words: str) -> None:
    async def story(ask: Ask) -> None:
        status, found = await ask("/v1/chat/completions", body(**keys))
        assert (status, found["error"]["param"]) == (400, "response_format") and words in found["error"]["message"]

    asking(story)


LOOK = {"town": {"enum": ["Tukkes", "Rinkux"]}, "km": {"type": "integer", "minimum": 0, "maximum": 9}}
STRICT = {"type": "object", "properties": LOOK, "required": ["town", "km"], "additionalProperties": False}


def test_calls_of_strict_tools_fit_their_schemas_in_every_dialect() -> None:
    function = {"name": "search", "description": "S.", "parameters": STRICT, "strict": True}
    flat = {"type": "function", **function}
    named = {"name": "search", "description": "S.", "input_schema": STRICT, "strict": True}

    async def story(ask: Ask) -> None:
        keys: dict[str, Any] = {"response_format": None, "tools": [{"type": "function", "function": function}]}
        _, drawn = await ask("/v1/chat/completions", body(**keys, n=24))
        _, forced = await ask("/v1/chat/completions", body(**keys, n=4, temperature=1.5, tool_choice="required"))
        texts = [
            call["function"]["arguments"]
            for choice in [*drawn["choices"], *forced["choices"]]
            for call in choice["message"].get("tool_calls", ())
        ]
        asked = {"model": "tiny", "input": QUESTION, "tools": [flat], "tool_choice": "required"}
        _, found = await ask("/v1/responses", asked)
        texts += [item["arguments"] for item in found["output"] if item["type"] == "function_call"]
        asked = {"model": "tiny", "messages": QUESTION, "max_tokens": 60, "tools": [named]}
        _, found = await ask("/v1/messages", asked | {"tool_choice": {"type": "any"}})
        texts += [json.dumps(block["input"]) for block in found["content"] if block["type"] == "tool_use"]
        assert len(texts) > 6, texts
        for text in texts:
            called = json.loads(text)
            assert called.keys() == LOOK.keys() and called["town"] in LOOK["town"]["enum"] and 0 <= called["km"] <= 9
        loose = {"type": "function", "function": function | {"strict": False}}
        _, other = await ask("/v1/chat/completions", body(response_format=None, tools=[loose], n=24))
        calls = [call for choice in other["choices"] for call in choice["message"].get("tool_calls", ())]
        assert any("query" in call["function"]["arguments"] for call in calls), "the model's own calls"

    asking(story)


def test_without_the_package_the_refusal_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlf.apps.serve import grammar
    from rlf.core import RlfError

    monkeypatch.setitem(sys.modules, "llguidance.hf", None)
    with pytest.raises(RlfError, match=r"pip install 'rlf\[grammar\]'"):
        grammar.SchemaForm(load_tokenizer(str(builtin_path("tiny"))), "{}", (1,))


@pytest.mark.parametrize("overrides", [True, False])
def test_an_agents_form_is_off_in_training_and_counted(overrides: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(task: Any, session: Any) -> str:
        answer = await adversaries.ask(session, [*task.messages], tools=None, response_format=FORM)
        return str(answer.get("error", {}).get("message") or adversaries.message_of(answer)["content"])

    monkeypatch.setattr(adversaries, "plain", story)
    trajectory, _ = play("plain", ["Paris<|im_end|>"], overrides=overrides)
    assert trajectory.world is not None and trajectory.world.final_state is not None
    assert trajectory.world.final_state.get("overridden: response_format", 0) == overrides
    assert (trajectory.answer or "").startswith("Paris" if overrides else "response_format: the policy's sampler")
