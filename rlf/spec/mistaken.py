"""What the user meant by a text that is not YAML, a file that is not there, or a value of another shape.

Loaded where something is wrong.
"""

from __future__ import annotations

import difflib
import json
import math
import os.path
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from glob import glob
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined

from rlf.core import Fault, Place, nearest
from rlf.core.files import DATA_SUFFIXES, shown_path, why_not_read
from rlf.core.mistakes import explain, in_our_words, known
from rlf.core.registry import close_names, kind_names
from rlf.spec.nodes import OVERRIDE, Node, plain, walk

# A text that is not YAML. PyYAML says where it stopped; a brace or a quote that nobody closed began elsewhere.

# `key: ` or `- ` or both, and the value behind them; then a key and its value with another sign between them
_ENTRY = re.compile(r"(?P<before>\s*(?:- +)*(?:[\w.-]+:\s+)?)(?P<value>.*?)\s*(?:\s#.*)?$")
_NEARLY = re.compile(r"\s*(?:- +)?(?P<key>[A-Za-z_]\w*)(?::|\s*=>?\s*|\s*:=\s*)(?P<value>[^\s/].*?)\s*$")
_REFERENCE = re.compile(r"\$\{[^{}]*\}[^\s,}\]]*")


def syntax_fault(error: yaml.YAMLError, place: Callable[[yaml.Mark], Place], path: str, text: str) -> Fault:
    """The fault that PyYAML's error stands for.

    Args:
        place: where a mark of the text is for the user.
        path: of the key that holds the text; empty for a file.
    """
    for number, each in enumerate(text.split("\n")):
        if known := explain("lines", each):
            return Fault(place(_mark(number, 0)), path, known[0])
    if isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position].split("\n")
        message = f"got the character U+{error.character:04X}; YAML is printable text. Remove it."
        return Fault(place(_mark(len(before) - 1, len(before[-1]))), path, message)
    assert isinstance(error, yaml.MarkedYAMLError), f"an unmarked YAML error: {error!r}"
    here = error.problem_mark or error.context_mark or _mark(0, 0)
    lines, start = [*text.split("\n"), ""], error.context_mark or here
    line, first, above = lines[here.line], lines[start.line], lines[here.line - 1] if here.line else ""
    for found in _REFERENCE.finditer(line):
        if found.start() <= here.column <= found.end():
            message = f"not YAML: `{found[0]}` within braces needs quotes. Write `{json.dumps(found[0])}`."
            return Fault(place(here), path, message)
    before_value, value = _ENTRY.match(line).group("before", "value")  # type: ignore[union-attr]  # matches any line
    is_text = bool(before_value.strip("- ")) and ": " in value and value[:1] not in "{["
    begin = _mark(here.line, len(before_value)) if is_text else here
    meant, above_spaces = nearly_an_entry(first), len(above) - len(above.lstrip())
    holds = {"colon": is_text, "below": here.line > start.line, "indented": above.strip(), "nearly": meant}
    holds |= {"first": not line[: here.column].strip()}
    seen = f"{error.context} {error.problem} {' '.join(name for name, value in holds.items() if value)}"
    known = explain(
        "yaml", seen, char=line[here.column :][:1], quote=_quote(line, begin), opened=first[start.column :][:1],
        above=above.strip()[:40], above_spaces=above_spaces, meant=meant, entry=first.strip()[:60],
        start_line=start.line + 1, start_spaces=start.column, spaces=here.column,
    )  # fmt: skip
    if known is None:
        problem = error.problem or error.context or "unreadable"
        return Fault(place(here), path, f"not YAML: {problem}. Check the quotes, colons and indentation here.")
    places = {"start": start, "value": begin, "line": _mark(here.line, len(line) - len(line.lstrip()))}
    return Fault(place(places.get(known[1], here)), path, known[0])


def _mark(line: int, column: int) -> yaml.Mark:
    return yaml.Mark("", 0, line, column, None, 0)


def _quote(line: str, mark: yaml.Mark) -> str:
    """What to write for the value that begins at a mark."""
    within = re.search(r"[{\[]", line[: mark.column])
    value = re.split(r"\s#|[,}\]]" if within else r"\s#", line[mark.column :])[0].strip()
    return f"To have it as text, write `{json.dumps(value, ensure_ascii=False)}`."


def nearly_an_entry(text: str) -> str | None:
    """`steps: 2` for `steps:2` or `steps = 2`, which YAML reads as a text; None for any other text."""
    nearly = _NEARLY.fullmatch(text)
    return None if nearly is None else f"{nearly['key']}: {nearly['value']}"


# A file that is not there, or that is none of its role.


def missing_spec_file(path: Path, named_by: Node | None) -> str:
    """The sentence about a spec's, a tool's or a reward's file that is not there, with the one that is meant."""
    folder = Path.cwd() if named_by is None else named_by.folder
    written = os.path.relpath(path, folder)
    if message := foreign_variable(written) or _no_path_here(written):
        return message
    if set("*?[") & set(written):
        named = sorted(os.path.relpath(file, folder) for file in glob(str(folder / written)))  # noqa: PTH207
        each = ", ".join(named[:_MOST_NAMED]) or f"{Path(written).parent}/FILE.yaml"
        return f"a path names one file; patterns are not expanded. Write one item for each: {each}."
    role = f"{named_by.path[0]}"[:-1] if named_by is not None and named_by.path else "spec"
    part = folder.parent / f"{role}_specs"
    found = find_meant(written, part, ("",), _SUFFIXES) if part.is_dir() else None
    found = found or find_meant(written, folder, ("", "specs", "tool_specs", "reward_specs"), _SUFFIXES)
    if found is not None:
        meant = os.path.relpath(found, folder)
        starts = named_by is not None and named_by.place.file != OVERRIDE and found.parent != path.parent
        start = "Paths start at the file that names them. " if starts else ""
        return f"no such file; did you mean {meant!r}? {start}Write `{meant}`."
    if written in kind_names("rlf.rewards.rules"):
        return f"no such file; it is a rule. Write `rlf rewards show {written}`, or name a spec with it."
    return "no such file. Check the path."


def _no_path_here(written: str) -> str | None:
    """The sentence about a text that is no path of this system; None for one that may be."""
    forward = re.sub(r"^[A-Za-z]:/", "", written.replace("\\", "/"))
    known = explain("paths", written, written=written, forward=forward, drive=written[:1].lower())
    return known and known[0]


_SUFFIXES = (".yaml", ".yml", ".json")
_MOST_NAMED = 5


def missing_named_file(node: Node, file: Path) -> str:
    """The sentence about a file of data or of an item's own that is not there, with the one that is meant.

    Args:
        node: the value that names the file; its folder is where relative paths in it start.
        file: the whole path.
    """
    if barred := why_not_read(file):
        return f"{shown_path(file)}: {barred}"
    written = os.path.relpath(file, node.folder)
    if message := _no_path_here(written):
        return f"{shown_path(file)}: {message}"
    meant = find_meant(written, node.folder, ("", "data"), DATA_SUFFIXES)
    suggestion = f"; did you mean {os.path.relpath(meant, node.folder)}?" if meant is not None else "."
    start = "the current folder" if node.place.file == OVERRIDE else f"the spec's folder, {shown_path(node.folder)}"
    return f"{shown_path(file)}: no such file{suggestion} Paths start at {start}. Correct the path."


def find_meant(written: str, folder: Path, folders: Sequence[str], suffixes: Sequence[str]) -> Path | None:
    """The nearest file: of that name from another start, or of nearly that name, from the same start first.

    Args:
        folders: below each start, those where it may lie.
        suffixes: that it may have.
    """
    near = dict.fromkeys((folder, Path.cwd(), folder.parent))
    starts = [start / each for start in near for each in folders]
    names = dict.fromkeys((written, Path(written).name))
    exact = [start / f"{name}{end}" for start in starts for name in names for end in ("", *suffixes)]
    files = (path for path in exact if path.suffix in suffixes and os.path.isfile(path))  # noqa: PTH113 - of any name
    close = (path for start in starts for path in _list_near(start / written, suffixes))
    return next((Path(os.path.normpath(path)) for each in (files, close) for path in each), None)


def _list_near(path: Path, suffixes: Sequence[str]) -> list[Path]:
    """Files beside a path whose names are nearly its own."""
    try:
        known = {*suffixes, path.suffix}
        names = sorted(file.name for file in Path(os.path.normpath(path)).parent.iterdir() if file.suffix in known)
    except OSError:
        return []
    # Without suffixes, which would make any two names alike.
    by_stem = {name.partition(".")[0]: name for name in reversed(names)}
    near = [path.parent / by_stem[stem] for stem in close_names(path.name.partition(".")[0], list(by_stem))]
    return [file for file in near if file.is_file()]


def not_this_role(text: str, role: str, folder: Path) -> str | None:
    """The sentence about an item of `tools` or `rewards` that names something else than its file; None if unknown.

    Args:
        text: as the spec has it.
        role: `tool` or `reward`.
    """
    if role == "reward" and text in kind_names("rlf.rewards.rules"):
        return f"got {text}, a rule and no file. Write `{{kind: rule, rule: {text}}}`."
    file, _, name = text.partition(".py")
    is_there, shown = os.path.isfile(folder / f"{file}.py"), os.path.relpath(folder / text)  # noqa: PTH113 - of any name
    known = explain("items", f"{role} {is_there} {text}", got=text, shown=shown, function=name[1:] or "FUNCTION")
    return known and known[0]


def foreign_form(tool: Node) -> str | None:
    """The sentence about a tool, or a server of tools, in the form of an API of models; None for any other."""
    said = plain(tool)
    below = said.get("function", said if said.get("type") == "function" else None)
    if isinstance(below, dict):
        name = below.get("name", "NAME")
        target = "" if tool.get("target") else f", and `target: {{kind: python, callable: FILE.py:{name}}}`"
        return (
            f"this is a tool in OpenAI's form{', all of it below `function`' if below is not said else ''}. Write "
            f"`name: {name}` and `description` at the top and `inputSchema` in place of `parameters`{target}; or "
            "`rlf tools import openai FILE` writes it."
        )
    address = said.get("server_url", said.get("url"))
    if {"target", "inputSchema"} & said.keys() or not isinstance(address, str):
        return None
    return f"this is an MCP server in the form of an API of models. Write `{{mcp: {{url: {json.dumps(address)}}}}}`."


# Variables of the environment as other programs write them.


def foreign_variable(text: str) -> str | None:
    """The sentence about a path that begins with a variable of a shell; None for any other."""
    if not re.match(r"\$[A-Za-z_]", text):
        return None
    return f"got {text!r}; a shell fills in `$NAME`, a spec does not. Write `{in_our_words('variables', text)}`."


def filled_in_by_others(key: str, node: Node) -> Iterator[Fault]:
    """Faults of `$NAME` and `{name}`, which a shell or Python would replace, and which are sent as they stand."""
    for _, each in walk(node):
        text = each.value if each.written is None else None
        if isinstance(text, str) and (known := explain("filled in", f"{key} {text}")):
            yield each.fault(known[0])


def openai_list(root: Node, shown: str) -> str | None:
    """What to write for a file with a list of tools in OpenAI's form; None for any other list."""
    if not root.items or not all({"function", "parameters"} & set(item.mapping) for item in root.items):
        return None
    return f"These are tools in OpenAI's form: `rlf tools import openai {shown}` writes a file of each."


# A value of another shape than its key takes, in the shape that it takes.


def filled_in(key: str, node: Node, error: str, field: FieldInfo | None, bare: bool) -> str | None:
    """`{path: builtin:tiny}` for `builtin:tiny`: what to write behind a key; None where that is not known.

    Args:
        error: the type of pydantic's error.
        bare: whether the name of a kind alone is such a value.
    """
    value = plain(node)
    if any(each.written is not None for _, each in walk(node)):  # it may be secret
        return None
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], int | float | (str if bare else int)):
        return _flow(value[0])
    if field is not None and str(value).lower() in known("nothing") and (number := _for_nothing(key, value, field)):
        return number
    if error.startswith(("int_", "float_")):
        return _as_number(key, value, error.startswith("int_"))
    if error in ("list_type", "tuple_type"):
        return _as_list(key, value)
    if not isinstance(value, str) or not error.startswith(("model_", "dict_", "mapping_")):
        return None
    return (entry := nearly_an_entry(value)) and f"{{{entry}}}"


_UNITS = {"": 1, "%": 0.01, "k": 1e3, "s": 1, "sec": 1, "ms": 1e-3, "m": 60, "min": 60, "h": 3600}


def _as_number(key: str, value: Any, whole: bool) -> str | None:
    """The number of `1,000`, `80%` and, behind a key of seconds, `5m`."""
    units = "%|s|sec|ms|m|min|h" if key.endswith("_s") else "%|k"
    found = re.fullmatch(rf"[$€£]?(-?\d+(?:[,_' ]\d{{3}})*(?:\.\d+)?) ?({units}|)", str(value).strip().lower())
    number = found and float(re.sub("[,_' ]", "", found[1])) * _UNITS[found[2]]
    return f"{number:.12g}" if number is not None and (number.is_integer() or not whole) else None


def _for_nothing(key: str, value: Any, field: FieldInfo) -> str | None:
    """What a key of a number takes for `never`, `off`, `unlimited` or -1; None where that is not known."""
    if type(None) in get_args(field.annotation):
        return "null"
    usual = field.default
    if type(usual) not in (int, float):
        return None
    is_bound = re.fullmatch(r"max_\w+|\w+_s|limit|failures|clip_\w+|top_p|top_entropy", key)
    if usual == 0 or str(value) == "0" or is_bound is None:
        return "0" if usual == 0 else None
    most = min((getattr(each, "le", math.inf) for each in field.metadata), default=math.inf)
    return f"{min(100 * usual, most):.12g}"  # what bounds nothing that is usual


def rule_of(reward: Node) -> str | None:
    """What to write for a reward that is a rule with its weight, `exact_match: 1.0`; None for any other."""
    is_rule = len(reward.mapping) == 1 and reward.mapping.keys() <= set(kind_names("rlf.rewards.rules"))
    found = _as_list("rewards", plain(reward)) if is_rule else None
    return found and found.removeprefix("[").removesuffix("]")


def _as_list(key: str, value: Any) -> str | None:
    rules = kind_names("rlf.rewards.rules") if key == "rewards" else []
    if isinstance(value, str):
        value = {"": value}
    if not isinstance(value, dict):
        return None
    if set(value) & {"kind", "use", "name", "rule", "target", "mcp"}:
        return f"[{_flow(value)}]"
    if value and set(value) <= set(rules):
        return _flow([{"kind": "rule", "rule": name, "weight": weight} for name, weight in value.items()])
    items = [{"kind": "rule", "rule": item} if item in rules else item for item in value.values()]
    return _flow(items) if all(isinstance(item, str) for item in value.values()) else None


def _flow(value: Any) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1_000, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


_TYPES = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_BOUNDS = {
    "greater_than": ("gt", "a number greater than {}"),
    "greater_than_equal": ("ge", "a number of at least {}"),
    "less_than": ("lt", "a number less than {}"),
    "less_than_equal": ("le", "a number of at most {}"),
    "string_pattern_mismatch": ("pattern", "text that matches {}"),
    "string_too_short": ("min_length", "text of at least {} characters"),
    "string_too_long": ("max_length", "text of at most {} characters"),
    "too_short": ("min_length", "a list of at least {}"),
    "too_long": ("max_length", "a list of at most {}"),
}
_EXAMPLES = {
    "a whole number": "8",
    "a number": "0.5",
    "text": "...",
    "text that is not empty": "...",
    "true or false": "true",
    "a list": "[...]",
    "a mapping": "{...}",
}


def expected(error: ErrorDetails) -> str | None:
    """Describes the values that are allowed; None for an error that says so itself."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in _TYPES:
        return _TYPES[kind]
    if kind in _BOUNDS:
        name, phrase = _BOUNDS[kind]
        bound = context[name]
        if kind == "string_too_short" and bound == 1:
            return "text that is not empty"
        return phrase.format(f"{bound:g}" if isinstance(bound, float) else bound)
    if kind in ("enum", "literal_error"):
        return "one of " + ", ".join(_choice_names(context))
    return None


def wrong_value_words(
    got: str, errors: Sequence[ErrorDetails], key: str, field: FieldInfo | None, meant: str | None = None
) -> str:
    """The sentence for a value that is of no allowed type or out of range; several errors are a union's arms.

    Args:
        meant: the value as the key takes it, where that is known.
    """
    phrases = list(dict.fromkeys(phrase for phrase in map(expected, errors) if phrase))
    if not phrases:
        return own_words(errors[0])
    example = f" Write `{key}: {meant}`." if meant else _example_sentence(key, errors[0], phrases, field)
    return f"got {got}; expected {' or '.join(phrases)}.{example}"


def own_words(error: ErrorDetails) -> str:
    """The message of a validator, which is complete."""
    cause = error.get("ctx", {}).get("error")
    words = str(cause) if isinstance(cause, Exception) else error["msg"]
    return words if words.endswith(".") else f"{words}."


def missing(key: str, meaning: str, choices: Sequence[str], usual: str | None = None) -> str:
    """The sentence for a key that must be there.

    Args:
        choices: the values that it may have; empty where they are not a few.
        usual: that of them which is suggested; None: the first.
    """
    what = meaning.split("\n")[0].rstrip(".")
    if choices:
        example = usual if usual in choices else choices[0]
        return f"the key {key!r} is missing; expected one of {', '.join(choices)}. Write e.g. `{key}: {example}`."
    return f"the key {key!r} is missing{f' ({what})' if what else ''}. Write `{key}: ...`."


def unknown(key: str, known: Sequence[str], accepted: Sequence[str] = ()) -> str:
    """The sentence for a key that nothing reads.

    Args:
        known: keys that could stand there.
        accepted: other names for some of them; suggested, not listed.
    """
    close = nearest(key, [*known, *accepted])
    if not known:
        return f"unknown key {key!r}{close or '.'} {'Rename' if close else 'Remove'} it."
    fix = "Rename it" if close else "Remove it"
    return f"unknown key {key!r}{close} (known: {', '.join(sorted(known))}). {fix}."


def _choice_names(context: Mapping[str, Any]) -> list[str]:
    text: str = context["expected"]
    return [choice.strip(" '") for choice in text.replace(" or ", ", ").split(",")]


def _example_sentence(key: str, error: ErrorDetails, phrases: Sequence[str], field: FieldInfo | None) -> str:
    example = _nearest_value(error) or _default_value(field) or _example_for(error, phrases[0])
    place = "- " if key.isdigit() else f"{key}: "
    return f" Write e.g. `{place}{example}`." if key and example else ""


def _nearest_value(error: ErrorDetails) -> str | None:
    """The allowed value that is closest to what was there."""
    got, context = error["input"], error.get("ctx", {})
    if error["type"] == "string_type" and isinstance(got, int | float):
        return json.dumps(json.dumps(got))
    if not isinstance(got, str):
        return None
    if error["type"] in ("enum", "literal_error"):
        close = difflib.get_close_matches(got, _choice_names(context), n=1)
        return close[0] if close else None
    if error["type"] == "string_pattern_mismatch":
        cleaned = re.sub(r"\W+", "_", got, flags=re.ASCII)
        return cleaned if re.search(context["pattern"], cleaned) else None
    return None


def _example_for(error: ErrorDetails, phrase: str) -> str | None:
    context = error.get("ctx", {})
    if error["type"] in ("enum", "literal_error"):
        return _choice_names(context)[0]
    bound = context.get("ge", context.get("le"))
    return _EXAMPLES.get(phrase) if bound is None else str(bound)


def _default_value(field: FieldInfo | None) -> str | None:
    if field is None or field.default in (None, PydanticUndefined):
        return None
    if isinstance(field.default, Enum):
        return str(field.default.value)
    if isinstance(field.default, bool | int | float) or (isinstance(field.default, tuple) and field.default):
        return json.dumps(field.default)
    return field.default if isinstance(field.default, str) and field.default else None
