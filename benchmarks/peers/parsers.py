"""rlf's Hermes parser and exact match beside verl's, on the same turns: CPU time, calls found, equal rewards.

verl's parser is adapted from vLLM's. Its files are loaded alone, without ray and with decoding on the event loop in
place of a thread, which is in its favour. The sides take turns in one process.

    uv pip install --target DIR --no-deps verl==0.9.1
    python benchmarks/peers/parsers.py --verl DIR [--rounds 7]
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import logging
import sys
import time
import types
from pathlib import Path
from statistics import median

from rlf.builtin.names import builtin_path
from rlf.chat.encoding import load_tokenizer
from rlf.chat.format import open_format
from rlf.rewards import Term, TrajectoryFacts
from rlf.types import ToolCall, ToolDescription

SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
TOOL = ToolDescription("search", "Find a passage.", SCHEMA)
GOOD = json.dumps({"name": "search", "arguments": {"query": "the town on the river Orr"}})
OFF_FORMAT = {
    "single quotes": "<tool_call>" + GOOD.replace('"', "'") + "</tool_call>",
    "trailing comma": "<tool_call>" + GOOD[:-1] + ",}</tool_call>",
    "no closing tag": "<tool_call>" + GOOD,
    "missing brace": "<tool_call>" + GOOD[:-1] + "</tool_call>",
    "fenced JSON": "<tool_call>```json\n" + GOOD + "\n```</tool_call>",
    "raw newline in a string": "<tool_call>" + GOOD.replace("town on", "town\non") + "</tool_call>",
    "parameters for arguments": "<tool_call>" + GOOD.replace("arguments", "parameters") + "</tool_call>",
    "a list of calls": f"<tool_call>[{GOOD}]</tool_call>",
    "second call malformed": f"<tool_call>{GOOD}</tool_call><tool_call>{GOOD[:-1]}</tool_call>",
    "rehearsed while thinking": f"<think><tool_call>{GOOD}</tool_call></think>The answer is Vell.",
}


NOWHERE = io.StringIO()
NUM_CALLS = 500


class Inline:
    """An event loop's executor that calls at once."""

    async def run_in_executor(self, _, function, *arguments):
        return function(*arguments)


def load_verl(folder: Path, path: str):
    """One of verl's files, what it imports of verl replaced."""
    stubs = {
        "verl.tools.schemas": {"OpenAIFunctionToolSchema": object},
        "verl.utils.ray_utils": {"get_event_loop": Inline},
        "verl.utils.rollout_trace": {"rollout_trace_op": lambda function: function},
    }
    for name, values in stubs.items():
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(values)
    spec = importlib.util.spec_from_file_location(Path(path).stem, folder / "verl" / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cost_us(work):
    """CPU microseconds of a call."""
    started = time.process_time()
    for _ in range(NUM_CALLS):
        work()
    return 1e6 * (time.process_time() - started) / NUM_CALLS


def compare(name, ours, theirs, rounds):
    pairs = [(cost_us(ours), cost_us(theirs)) for _ in range(rounds + 1)][1:]
    ratios = sorted(own / other for own, other in pairs)
    own, other = (median(side) for side in zip(*pairs, strict=True))
    spread = f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    print(f"{name:24} rlf {own:7.1f} us  verl {other:7.1f} us  rlf / verl {spread}")


def run_now(coroutine):
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


def main(arguments):
    logging.disable(logging.ERROR)  # verl logs what it cannot read
    tokenizer = load_tokenizer(str(builtin_path("tiny")))
    chat = open_format("hermes", tokenizer, [TOOL])
    verl = load_verl(arguments.verl, "experimental/agent_loop/tool_parser.py").HermesToolParser(tokenizer)
    call = f"I look for it. {chat.write_call(ToolCall('search', {'query': 'the town on the river Orr'}))}"
    answer = "The river Orr rises in the hills and passes the town of Vell. " * 4

    def ours(tokens):
        return chat.parse(chat.decode(tokens), truncated=False)

    def theirs(tokens):
        return run_now(verl.extract_tool_calls(tokens))

    for name, text in (("a call", call), ("an answer", answer)):
        tokens = tokenizer.encode(text, add_special_tokens=False)
        assert len(ours(tokens).calls) == len(theirs(tokens)[1]) == (name == "a call")
        compare(name, lambda tokens=tokens: ours(tokens), lambda tokens=tokens: theirs(tokens), arguments.rounds)
    for name, text in OFF_FORMAT.items():
        tokens = tokenizer.encode(text, add_special_tokens=False)
        parsed, found = ours(tokens), theirs(tokens)[1]
        failures = [item.message[:60] for item in parsed.observed if not hasattr(item, "arguments")]
        print(f"{name:26} rlf {len(parsed.calls)} calls {failures}; verl {len(found)} calls")
    rewards(load_verl(arguments.verl, "utils/reward_score/search_r1_like_qa_em.py"), arguments.rounds)


def rewards(verl, rounds):
    """Exact match with articles, case and punctuation: answers that differ, eight of each question."""
    rule = Term.model_validate({"kind": "rule", "name": "right", "rule": "exact_match"})
    for name, answer, value in (
        ("reward of a right answer", "Town of Vell {}.", 1.0),
        ("of a wrong one", "Orr {}", 0.0),
    ):
        cases = []
        for number in range(NUM_CALLS * (rounds + 1) + 1):
            said, golds = answer.format(number), [f"the town of Vell {number}", f"Vell {number // 8}"]
            facts = {"gold": golds, "answer": said, "turns": [{"text": said, "num_tokens": 8}]}
            trajectory = TrajectoryFacts.model_validate(facts).trajectory("t", task_id="q")
            cases.append((trajectory, f"<answer>{said}</answer>", {"target": golds}))
        mine, other = iter(cases), iter(cases)

        def ours(mine=mine):
            return rule.judge(next(mine)[0]).value

        def theirs(other=other):
            _, text, gold = next(other)
            with contextlib.redirect_stdout(NOWHERE):  # it prints one in 64
                return verl.compute_score(text, gold)

        assert ours() == theirs() == value
        compare(name, ours, theirs, rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--verl", type=Path, required=True, help="where verl's package lies")
    parser.add_argument("--rounds", type=int, default=7)
    main(parser.parse_args())
