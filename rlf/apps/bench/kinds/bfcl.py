"""`rlf bench bfcl`: the Berkeley Function Calling Leaderboard, judged by the checkers of its own package.

Rows are made by the package's own loader. What a model wrote is decoded and judged by its own code, in a process of
its own: it evaluates calls as Python, so that nothing but a plain call with plain values ever reaches it.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from inspect import isfunction
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, Literal

from rlf.apps.bench.kind import Benchmark, PinnedPackages, Play, Row, read_names
from rlf.apps.bench.rows import RowWorld
from rlf.core.errors import RlfError
from rlf.core.files import scratch
from rlf.types import Task

_SINGLE = ("simple_python", "simple_java", "simple_javascript", "multiple", "parallel", "parallel_multiple")
_LIVE = ("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple")
_ABSENT = ("irrelevance", "live_irrelevance", "live_relevance")
_TURNS = ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context")
CATEGORIES = (*_SINGLE, "irrelevance", *_LIVE, "live_irrelevance", "live_relevance", *_TURNS)
GROUPS = {
    "all": CATEGORIES,
    "single_turn": tuple(name for name in CATEGORIES if name not in _TURNS),
    "non_live": (*_SINGLE, "irrelevance"),
    "live": (*_LIVE, "live_irrelevance", "live_relevance"),
    "multi_turn": _TURNS,
    "python": tuple(name for name in CATEGORIES if name not in (*_TURNS, "simple_java", "simple_javascript")),
}
LEFT_OUT = {
    "memory": "its tasks ask for what an agent wrote down in earlier conversations, partly by a model for vectors",
    "web_search": "its tasks need a paid search service",
    "agentic": "its tasks are those of memory, and of web_search, which needs a paid search service",
    "format_sensitivity": "the package gives it no score",
}
"""Categories of the package that are refused, by how their names begin, and why."""
NATIVE, PROMPT = "rlf", "rlf-prompt"
"""What the package's checkers know the two formats as: a native one writes `a_b` for a function `a.b`."""
_NAME = re.compile(r"[A-Za-z_]\w*")
_STEPS = 21
"""Turns in which a model may call, per turn of the user: the package ends a task after 20."""


class Bfcl(Benchmark):
    """Calls of functions: simple, multiple, parallel, irrelevant, and over several turns with stateful classes."""

    title: ClassVar[str] = "Berkeley Function Calling Leaderboard v4: single and multi turn, relevance"
    licence: ClassVar[str] = "Apache-2.0"
    packages: ClassVar[PinnedPackages | None] = PinnedPackages(
        "bfcl-eval==2026.3.23 mpmath==1.3.0 tree_sitter==0.21.3 tree-sitter-java==0.21.0 "
        "tree-sitter-javascript==0.21.4 tenacity==9.1.2"
    )

    categories: str = "single_turn"
    """Categories or groups of them, with commas."""
    format: Literal["native", "prompt"] = "native"
    """`native`: functions as the model's chat format shows them; `prompt`: in the package's own system prompt."""

    @property
    def play(self) -> Play:
        """Single turns end with the first; a task of several turns after 21 calls to a turn."""
        chosen = self._categories
        turns = 1 if not {*_TURNS} & {*chosen} else 8 * _STEPS
        return Play(
            scores=("valid",),
            world=f"{__name__}:BfclWorld",
            args={"format": self.format},
            rollout={"max_turns": turns, "max_total_tokens": 32_768 if turns > 1 else 16_384, "max_new_tokens": 4096},
        )

    @property
    def _categories(self) -> list[str]:
        for name in self.categories.split(","):
            for part, why in LEFT_OUT.items():
                if name.strip().startswith(part):
                    raise RlfError(f"--categories: {name.strip()} cannot be tried here: {why}. Leave it out.")
        return read_names(self.categories, CATEGORIES, GROUPS, "category")

    def rows(self) -> Iterator[Row]:
        """The package's own entries; functions are `tools`, in the form that OpenAI-compatible models are given."""
        for category in self._categories:
            golds: Sequence[Any] = [None] * 10_000
            if category not in _ABSENT:
                golds = [one["ground_truth"] for one in package().utils.load_ground_truth_entry(category)]
            # Models are shown hints on the language and types as text; the checkers compare with the plain documents.
            shown = package().utils.load_dataset_entry(category)
            plain = package().utils.load_dataset_entry(category, include_language_specific_hint=False)
            for entry, hinted, gold in zip(plain, shown, golds, strict=False):
                yield self._make_row(category, entry, hinted["function"], gold)

    def _make_row(self, category: str, entry: dict[str, Any], shown: list[Any], gold: Any) -> Row:
        messages: list[dict[str, str]] = entry["question"][0]
        if self.format == "prompt":
            messages = package().in_prompt(messages, shown, entry["id"])
        documents = [] if self.format == "prompt" else package().convert(shown)
        kept = {
            name: entry[name] for name in ("initial_config", "involved_classes", "missed_function") if name in entry
        }
        return {
            "id": entry["id"],
            "kind": category,
            "prompt": messages,
            "tools": documents,
            "entry": json.dumps(
                {"id": entry["id"], "function": entry["function"], "question": entry["question"], **kept}
            ),
            "ground_truth": json.dumps(gold),
        }

    def summary(self, rates: Mapping[str, tuple[float, int]]) -> Mapping[str, float]:
        """Accuracies as the leaderboard forms them: unweighted means of categories, live ones by their questions."""
        found = {}
        simple = [rates[name][0] for name in rates if name.startswith("simple_")]
        ast_rates = [sum(simple) / len(simple)] if simple else []
        ast_rates += [rates[name][0] for name in ("multiple", "parallel", "parallel_multiple") if name in rates]
        if ast_rates:
            found["non_live_ast"] = sum(ast_rates) / len(ast_rates)
        for name, parts in (("live_ast", _LIVE), ("multi_turn", _TURNS)):
            there = [rates[part] for part in parts if part in rates]
            weights = [number if name == "live_ast" else 1 for _, number in there]
            if there:
                found[name] = sum(one * weight for (one, _), weight in zip(there, weights, strict=True)) / sum(weights)
        return found


@cache
def package() -> SimpleNamespace:
    """The parts of bfcl-eval 2026.3.23 that are used; its models' handlers, which need 30 packages, stay away."""
    with scratch("rlf-bfcl") as folder:  # it makes folders for results where it is imported, and none later
        os.environ["BFCL_PROJECT_ROOT"] = str(folder)
        return _import_package()


def _import_package() -> SimpleNamespace:
    # One of its modules lists handlers of every vendor.
    models = ModuleType("bfcl_eval.constants.model_config")
    vars(models)["MODEL_CONFIG_MAPPING"] = {
        NATIVE: SimpleNamespace(underscore_to_dot=True),
        PROMPT: SimpleNamespace(underscore_to_dot=False),
    }
    sys.modules[models.__name__] = models
    utils = import_module("bfcl_eval.utils")
    handling = import_module("bfcl_eval.model_handler.utils")
    turns = import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker")
    executing = import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils")
    # It looks for the methods of every instance at every call: they are those of its class.
    vars(executing)["inspect"] = SimpleNamespace(getmembers=_list_methods, ismethod=None)
    enums = import_module("bfcl_eval.constants.enums")
    types = import_module("bfcl_eval.constants.type_mappings")
    prompts = import_module("bfcl_eval.constants.default_prompts")
    return SimpleNamespace(
        utils=utils,
        ast_checker=import_module("bfcl_eval.eval_checker.ast_eval.ast_checker").ast_checker,
        turn_checker=turns.multi_turn_checker,
        execute=executing.execute_multi_turn_func_call,
        instances=vars(executing),
        class_modules=executing.CLASS_FILE_PATH_MAPPING,
        languages={"java": enums.Language.JAVA, "javascript": enums.Language.JAVASCRIPT},
        python=enums.Language.PYTHON,
        formats=enums.ReturnFormat,
        decode=handling.default_decode_ast_prompting,
        decode_calls=handling.default_decode_execute_prompting,
        write_calls=handling.convert_to_function_call,
        in_prompt=handling.system_prompt_pre_processing_chat_model,
        show_results=handling.format_execution_results_prompting,
        more_functions=prompts.DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING,
        convert=lambda documents: handling.convert_to_tool(
            documents, types.GORILLA_TO_OPENAPI, enums.ModelStyle.OPENAI_COMPLETIONS
        ),
    )


def _list_methods(instance: Any, predicate: None) -> list[tuple[str, Any]]:
    return [(name, getattr(instance, name)) for name in _method_names(instance.__class__)]


@cache
def _method_names(kind: type[Any]) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_") and isfunction(getattr(kind, name))]


Call = tuple[str, Mapping[str, Any]]


class UnreadableAnswer(ValueError):
    """An answer that holds no calls, or one whose decoding would run what the model wrote."""


def judge_calls(row: Mapping[str, Any], calls: Sequence[Call]) -> dict[str, Any]:
    """The verdict of the package's checker on the calls of a native turn: `valid` and why not."""
    return _judge(row, [{name: dict(arguments)} for name, arguments in calls], NATIVE)


def judge_text(row: Mapping[str, Any], text: str) -> dict[str, Any]:
    """The verdict on an answer that has its calls as text."""
    try:
        decoded = _decode(text, _language(row["kind"]))
    except Exception as fault:  # noqa: BLE001 - as the package: whatever its decoder raises is no call
        if row["kind"] in _ABSENT:
            return _judge(row, [], PROMPT)
        return {"valid": False, "error_type": "ast_decoder:decoder_failed", "error": [str(fault)]}
    return _judge(row, decoded, PROMPT)


def _language(category: str) -> str:
    return category.removeprefix("simple_") if category in ("simple_java", "simple_javascript") else "python"


def _judge(row: Mapping[str, Any], decoded: Any, model: str) -> dict[str, Any]:
    used, category = package(), row["kind"]
    if category in _ABSENT:
        called = not used.utils.is_empty_output(decoded)
        return {"valid": called is (category == "live_relevance"), "error_type": category}
    if not used.utils.is_function_calling_format_output(decoded):
        return {"valid": False, "error_type": "ast_decoder:decoder_wrong_output_format"}
    language = used.languages.get(_language(category), used.python)
    entry = json.loads(row["entry"])
    verdict: dict[str, Any] = used.ast_checker(
        entry["function"], decoded, json.loads(row["ground_truth"]), language, category, model
    )
    return verdict


def _decode(text: str, language: str) -> Any:
    if language == "python":
        _refuse_code(text)
    return package().decode(text, package().formats(language))


def _refuse_code(text: str) -> None:
    """Raises UnreadableAnswer where the package's decoder would evaluate more than arithmetic of plain values."""
    body = text.strip("`\n ")
    body = body if body.startswith("[") else f"[{body}"
    tree = ast.parse((body if body.endswith("]") else f"{body}]").strip().strip("'"), mode="eval")
    for node in ast.walk(tree):
        # `resolve_ast_by_type` passes these to `eval`: names, attributes and calls in them would be run.
        if isinstance(node, ast.BinOp | ast.Lambda):
            names = (ast.Name, ast.Attribute, ast.Call, ast.Lambda, ast.comprehension, ast.Pow, ast.LShift)
            if any(isinstance(part, names) for part in ast.walk(node)):
                raise UnreadableAnswer("an expression that would be run")


def write_plain_call(name: str, arguments: Mapping[str, Any]) -> str:
    """A call as the package executes it; of one that is no plain call, a name that no class has."""
    if not _NAME.fullmatch(name) or not all(_NAME.fullmatch(key) for key in arguments):
        return "unknown_function()"
    written: list[str] = package().write_calls([{name: dict(arguments)}])
    return written[0]


_TEXTS = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
"""Texts in a call, which may hold brackets."""


def read_plain_calls(text: str) -> list[str]:
    """The calls of an answer in the prompt's format, as the package executes them. Raises UnreadableAnswer for none."""
    try:
        _refuse_code(text)
        calls: list[str] = package().decode_calls(text)
    except Exception as fault:
        raise UnreadableAnswer(str(fault)) from fault
    # A value that is a call itself would be run too: only functions of the package's classes are names there.
    plain = [
        call for call in calls if re.fullmatch(r"[A-Za-z_]\w*\([^()]*\)", _TEXTS.sub("''", call).replace("(,)", ""))
    ]
    return [call if call in plain else "unknown_function()" for call in calls]


_NUMBERS = count()


def judge_turns(row: Mapping[str, Any], turns: Sequence[Sequence[Sequence[str]]]) -> dict[str, Any]:
    """The verdict on calls by turn of the user and turn of the model, as Python."""
    golds, entry = json.loads(row["ground_truth"]), json.loads(row["entry"])
    if len(turns) != len(golds):
        return {"valid": False, "error_type": "multi_turn:force_terminated"}
    name = f"{NATIVE}_{next(_NUMBERS)}"  # the package keeps its instances by this name
    try:
        verdict: dict[str, Any] = package().turn_checker(
            [[list(step) for step in turn if step] for turn in turns], golds, entry, row["kind"], name
        )
    finally:
        forget_instances(name)
    return verdict


def forget_instances(name: str) -> None:
    """Removes what the package keeps of a model's instances, which the next task would meet."""
    found = package().instances
    for key in [key for key in found if key.startswith(f"{name}_") and key.endswith("_instance")]:
        del found[key]


class BfclWorld(RowWorld):
    """One entry: its user's turns, its classes, and the checkers' verdict on what the model wrote."""

    def __init__(self, format: str) -> None:  # noqa: A002 - the benchmark's option
        self._is_prompt = format == "prompt"
        self._name = f"{NATIVE}_world_{next(_NUMBERS)}"
        self._row: Mapping[str, Any] = {}
        self._entry: dict[str, Any] = {}

    @classmethod
    def import_shared(cls, **args: Any) -> None:
        """Imports the package and the modules of all its classes, before instances are forked."""
        for name, module in package().class_modules.items():
            if not name.startswith(("Memory", "WebSearch")):  # of categories that are left out, and large
                import_module(module)

    @property
    def _has_turns(self) -> bool:
        return self._row["kind"] in _TURNS

    def reset(self, task: Task, seed: int) -> str | None:
        """Takes the row."""
        self._row, self._entry = task.columns, json.loads(task.columns["entry"])
        self._turns: list[dict[str, Any]] = []
        self._at, self.done = 0, False
        return None

    def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Executes a call in the entry's classes; a single turn executes nothing."""
        self._turns.append({"text": "", "calls": [(tool, arguments)]})
        if not self._has_turns:
            self.done = True
            return "not executed"
        return self._execute([write_plain_call(tool, arguments)])[0]

    def _execute(self, calls: list[str]) -> list[str]:
        entry = self._entry
        long = self._row["kind"] == "multi_turn_long_context"
        results: tuple[list[str], Any] = package().execute(
            calls, entry["initial_config"], entry["involved_classes"], self._name, entry["id"], long_context=long
        )
        return results[0]

    def reply(self, text: str) -> str | None:
        """Executes the calls of a prompt's answer; without any, the user's next turn, or the end."""
        self._turns.append({"text": text, "calls": []})
        if not self._has_turns:
            return None
        if self._is_prompt:
            try:
                if calls := read_plain_calls(text):
                    return str(package().show_results({}, self._execute(calls), {"model_responses_decoded": calls}))
            except UnreadableAnswer:
                pass  # words: the user's next turn
        return self._next_turn()

    def _next_turn(self) -> str | None:
        self._at += 1
        if self._at >= len(self._entry["question"]):
            return None
        held_out = self._entry.get("missed_function", {}).get(str(self._at))
        if held_out:  # a prompt cannot be changed any more, so that the new functions are shown as in prompts
            return str(package().more_functions.format(functions=held_out))
        return "\n".join(message["content"] for message in self._entry["question"][self._at])

    def review(self, turns: Sequence[Mapping[str, Any]]) -> None:
        """What the model wrote, with calls that nothing could take.

        Answers of a prompt were all taken as words by `reply`; here they would end with the marks of the chat format.
        """
        if not self._is_prompt:
            self._turns = [dict(turn) for turn in turns]

    def score(self) -> Mapping[str, float]:
        """The checkers' verdict."""
        return {"valid": float(self.verdict()["valid"])}

    def verdict(self) -> dict[str, Any]:
        """The checkers' verdict with its reasons."""
        if self._has_turns:
            return judge_turns(self._row, self._by_user_turn())
        if self._is_prompt:
            return judge_text(self._row, self._turns[0]["text"] if self._turns else "")
        return judge_calls(self._row, [call for turn in self._turns[:1] for call in turn["calls"]])

    def _by_user_turn(self) -> list[list[list[str]]]:
        """Calls by turn of the user: a turn of the model without any ends one."""
        found: list[list[list[str]]] = [[]]
        is_over = False
        for turn in self._turns:
            if is_over:
                found.append([])
            calls = [write_plain_call(name, arguments) for name, arguments in turn["calls"]]
            if self._is_prompt:
                try:
                    calls = read_plain_calls(turn["text"])
                except UnreadableAnswer:
                    calls = []
            is_over = not calls
            found[-1].append(calls)
        return found if is_over else found[:-1]

    def gold(self) -> list[Any] | None:
        """The published answer: calls, and words after each turn of several."""
        gold = json.loads(self._row["ground_truth"])
        if gold is None:
            return ["No function fits."] if "irrelevance" in self._row["kind"] else None
        if not self._has_turns:
            return [{"name": name.replace(".", "_"), "arguments": one} for name, one in right_calls(self._entry, gold)]
        found: list[Any] = []
        for turn in gold:
            found += [read_python_call(call, self._entry) for call in turn]
            found.append("Done.")
        return found

    def close(self) -> bool:
        """Forgets the instances of the entry's classes: another row may come."""
        forget_instances(self._name)
        return True


def right_calls(entry: Mapping[str, Any], gold: Sequence[Mapping[str, Mapping[str, Sequence[Any]]]]) -> list[Call]:
    """Calls that the answer allows: each argument's first value, without optional ones that may be left out."""
    language = _language(entry["id"].rpartition("_")[0])
    schemas = {one["name"]: one["parameters"] for one in entry["function"]}
    calls: list[Call] = []
    for name, arguments in ((name, arguments) for call in gold for name, arguments in call.items()):
        schema = schemas.get(name, {})
        chosen = {
            key: _choose([one for one in values if one != ""] or values)
            for key, values in arguments.items()
            if "" not in values or key in schema.get("required", ())
        }
        if language != "python":  # where every value is written as the language's source
            types = schema["properties"]
            chosen = {key: write_literal(value, types[key], language) for key, value in chosen.items()}
        calls.append((name, chosen))
    return calls


def write_literal(value: Any, schema: Mapping[str, Any], language: str) -> str:
    """A value as Java or JavaScript has it in source, as the package's converters read it."""
    kind, plain = schema["type"], json.dumps(value)
    if isinstance(value, str):
        return value
    if language != "java":
        return plain
    inner = {"type": schema.get("items", {}).get("type", "any")}
    # Its converters take quotes of texts as part of them where the list is of `String`.
    parts = ", ".join(
        one if isinstance(one, str) and inner["type"] == "String" else write_literal(json.dumps(one), inner, language)
        for one in (value if isinstance(value, list) else ())
    )
    if kind == "ArrayList":
        return f"new ArrayList<Object>(Arrays.asList({parts}))"
    if isinstance(value, list):
        return f"new Object[]{{{parts}}}"
    if isinstance(value, dict):
        puts = " ".join(f'put("{key}", {json.dumps(one)});' for key, one in value.items())
        return f"new HashMap<String, Object>() {{{{ {puts} }}}}"
    return plain + {"float": "f", "long": "L"}.get(kind, "")


def _choose(values: Sequence[Any]) -> Any:
    """The first of the values; within a mapping, or a list of mappings, each key has values of its own."""
    value = values[0] if values else []
    if isinstance(value, dict):
        return {key: one[0] if isinstance(one, list) and one else one for key, one in value.items() if one != [""]}
    return [_choose([one]) if isinstance(one, dict) else one for one in value] if isinstance(value, list) else value


def read_python_call(text: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """A call written as Python, with positional values under their names."""
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name), f"not a call: {text}"
    name = call.func.id
    functions = [*entry["function"], *(one for held in entry.get("missed_function", {}).values() for one in held)]
    known = next((list(one["parameters"]["properties"]) for one in functions if one["name"] == name), [])
    arguments = dict(zip(known, map(ast.literal_eval, call.args), strict=False))
    arguments |= {one.arg: ast.literal_eval(one.value) for one in call.keywords if one.arg}
    return {"name": name, "arguments": arguments}
