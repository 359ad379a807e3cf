"""Checks that need a look: whether a spec's data, model, chat format and functions are there and fit.

Apart from `rlf.plan`, which opens nothing: this reads data files whole, and imports the user's functions once all that
their source says has been looked at.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel

from rlf.chat.settings import format_names, read_chat_template, remember_of_formats
from rlf.core import Fault, RlfError, SpecError, nearest
from rlf.core.callables import NotRun
from rlf.core.files import shown_path, why_not_read
from rlf.core.identity import is_sealed
from rlf.data import open_tasks
from rlf.spec.budget import MEASURED, PromptSizes, check_budget
from rlf.spec.kinds import is_endpoint
from rlf.spec.load import LoadedSpec, reads
from rlf.spec.model_files import (
    JSON_FILES,
    find_damaged_weights,
    find_no_object,
    folder_on_disk,
    named_folder,
    read_config,
    read_context,
    read_shapes,
)
from rlf.spec.models import DataSource
from rlf.spec.nodes import KeyPath, deepest_node, show
from rlf.spec.paths import TEACHER, declared_files, env_files, identity, is_local, missing_file, reward_files
from rlf.spec.rows import find_row_faults
from rlf.tools.validate import ArgumentCheck
from rlf.types import Task

if TYPE_CHECKING:
    from rlf.endpoints.spec import EndpointSpec

Datasets = dict[tuple[str, tuple[str, ...] | None], Sequence[Task] | SpecError]
"""Tasks that were read, or why not, by a dataset's keys and the tools that its rows may name; None: any."""


class InputReport(NamedTuple):
    """The inputs of a spec, and their faults."""

    faults: list[Fault]
    train: Sequence[Task]
    evaluation: Sequence[Task]
    """Empty where there is no such dataset or it has faults."""
    sizes: PromptSizes | None
    """Sizes of the training prompts; None where the tokenizer is not on this machine."""


def check_inputs(loaded: LoadedSpec) -> list[Fault]:
    """The faults of everything that a spec names. Hugging Face models are not fetched for it, datasets are."""
    return look(loaded).faults


def look(loaded: LoadedSpec, read: Datasets | None = None) -> InputReport:
    """The same with the questions that were read.

    Args:
        read: datasets that other specs of a sweep have read, which are not read again; what is read is added.
    """
    faults: list[Fault] = []
    read = {} if read is None else read
    train = _read_tasks(loaded, "train", read, faults)
    evaluation = _read_tasks(loaded, "eval", read, faults)
    faults += _check_teacher(loaded)
    about_model = [*_check_model(loaded)] or [*_check_sight(loaded)] or [*_check_chat(loaded)]
    sizes = None
    if not about_model and train and loaded.is_sound(*MEASURED):
        about_model, sizes = check_budget(loaded, train)
    faults += about_model
    for check in (
        _check_context,
        _adapted_modules,
        _check_trackers,
        _tool_files,
        _reward_files,
        _env_files,
        _check_certificates,
        _check_items,
        _check_world,
        _check_keys,
    ):
        faults += check(loaded)
    for name, tasks in (("train", train), ("eval", evaluation)):
        faults += find_row_faults(loaded, name, tasks)
    return InputReport(sorted(faults), train, evaluation, sizes)


def _read_tasks(loaded: LoadedSpec, name: str, read: Datasets, faults: list[Fault]) -> Sequence[Task]:
    """The rows of one dataset; none where there is no such dataset or it has faults."""
    here = ("data", name)
    source: DataSource | None = getattr(loaded.spec.data, name) if loaded.is_sound(here) else None
    if source is None:
        return []
    node, _ = deepest_node(loaded.tree, (*here, "path"))
    if is_local(source.path) and (message := missing_file(node, Path(source.path))):
        faults.append(node.fault(message))
        return []
    declared = _declared_names(loaded)
    key = (source.model_dump_json(), declared)
    if key not in read:
        try:
            read[key] = open_tasks(source.model_dump(), declared)
        except SpecError as error:
            read[key] = error
    found = read[key]
    if isinstance(found, SpecError):
        faults += [_about_data(loaded, name, fault) for fault in found.faults]
        return []
    return found


def _declared_names(loaded: LoadedSpec) -> tuple[str, ...] | None:
    """Names that rows may list; None where they are not known, so that any will do."""
    if not loaded.is_sound(("tools",), ("env",)):
        return None
    try:
        return loaded.spec.tool_names
    except RlfError:  # reported where the world itself is looked at
        return None


def _about_data(loaded: LoadedSpec, name: str, fault: Fault) -> Fault:
    """A row's fault is at the row; one of the file or its columns is at the key of the spec that names it."""
    if fault.place.line:
        return fault
    return loaded.fault(("data", name, fault.path or "path"), f"{fault.place.file}: {fault.message}")


@reads("model.path")
def _check_model(loaded: LoadedSpec) -> list[Fault]:
    return _check_folder(loaded, ("model", "path"), loaded.spec.model.path)


@reads("train.algorithm")
def _check_teacher(loaded: LoadedSpec) -> list[Fault]:
    return _check_folder(loaded, TEACHER, getattr(loaded.spec.train.algorithm, TEACHER[-1], None))


def _check_folder(loaded: LoadedSpec, path: KeyPath, name: str | None) -> list[Fault]:
    folder = None if name is None else named_folder(name)
    if name and not (folder and os.path.isdir(folder)):  # noqa: PTH112 - False where it may not be looked at
        from rlf.core.mistakes import explain

        if known := explain("models", name, got=show(name), name=name):
            return [loaded.fault(path, known[0])]
    if folder is None:
        return []
    shown = shown_path(folder)
    if barred := why_not_read(folder / "config.json"):
        return [loaded.fault(path, f"{shown}/config.json: {barred}")]
    if not folder.is_dir():
        fix = "Write a folder with a model in it, a Hugging Face id, or builtin:tiny."
        return [loaded.fault(path, f"{shown}: no such folder. {fix}")]
    absent = [name for name in ("config.json", "tokenizer_config.json") if not (folder / name).is_file()]
    if absent:
        fix = "Write a folder as `save_pretrained` leaves it, with model and tokenizer."
        return [loaded.fault(path, f"{shown}: has no {' and no '.join(absent)}. {fix}")]
    found = ((name, find_no_object(folder / name)) for name in JSON_FILES)
    faults = [loaded.fault(path, f"{shown}: {name} {words}") for name, words in found if words is not None]
    if not faults and (damage := find_damaged_weights(folder)) is not None:
        return [loaded.fault(path, f"{shown}: its weights are damaged: {damage}. Write or fetch the model again.")]
    return faults


@reads("model.path", "rollout.max_images")
def _check_sight(loaded: LoadedSpec) -> list[Fault]:
    """A fault of images for a model that sees none."""
    folder, max_images = named_folder(loaded.spec.model.path), loaded.spec.rollout.max_images
    if folder is not None and max_images > 0 and "vision_config" not in read_config(folder):
        message = f"{shown_path(folder)}: the model sees no images, and rollout.max_images is {max_images}. "
        return [loaded.fault(("model", "path"), f"{message}Write a vision-language model (VLM), or remove max_images.")]
    return []


def _find_formats(template: str) -> dict[str, str]:
    from rlf.chat.format import matching_formats

    return matching_formats(template)


@reads("model.path", "chat.format")
def _check_chat(loaded: LoadedSpec) -> list[Fault]:
    folder = named_folder(loaded.spec.model.path)
    if folder is None:
        return []
    try:
        template = read_chat_template(folder)
    except ValueError as error:
        return [loaded.fault(("model", "path"), f"{shown_path(folder)}: tokenizer_config.json is not JSON: {error}.")]
    chosen, known = loaded.spec.chat.format, format_names()
    if chosen != "auto" and (chosen not in known or _is_by_name(chosen)):
        return []
    if template is None:
        fix = "Use an instruction-tuned model, or put a chat_template.jinja into the folder."
        return [loaded.fault(("model", "path"), f"{shown_path(folder)}: has no chat template. {fix}")]
    matching = list(remember_of_formats(["formats", template], partial(_find_formats, template)))
    if chosen == "auto" and len(matching) != 1:
        got = " and ".join(matching) or "no known chat format"
        message = f"got auto, but the model's chat template is of {got}; expected one of {', '.join(known)}. "
        return [loaded.fault(("chat", "format"), f"{message}Name the format.")]
    if chosen != "auto" and chosen not in matching:
        fix = f"Write {matching[0]!r}." if matching else f"Use a model of that format (known: {', '.join(known)})."
        message = f"got {chosen!r}, but the model's chat template is not of that format. {fix}"
        return [loaded.fault(("chat", "format"), message)]
    return []


def _is_by_name(name: str) -> bool:
    """Whether a format asks nothing of the model's template."""
    from rlf.chat.format import FORMATS

    return FORMATS.get(name).by_name


@reads("model.path", "rollout.max_total_tokens")
def _check_context(loaded: LoadedSpec) -> list[Fault]:
    """A trajectory is no longer than what the model has positions for."""
    folder = folder_on_disk(loaded.spec.model.path)
    context = None if folder is None else read_context(folder)
    budget = loaded.spec.rollout.max_total_tokens
    if context is None or budget <= context:
        return []
    message = f"got {budget}; the model takes at most {context} tokens (max_position_embeddings). "
    return [loaded.fault(("rollout", "max_total_tokens"), f"{message}Write at most {context}.")]


@reads("model.path", "model.lora")
def _adapted_modules(loaded: LoadedSpec) -> list[Fault]:
    """Names of `model.lora.target_modules` that no linear module of the model has."""
    lora, folder = loaded.spec.model.lora, folder_on_disk(loaded.spec.model.path)
    if lora is None or isinstance(lora.target_modules, str) or folder is None:
        return []
    names = [name.removesuffix(".weight") for name, shape in read_shapes(folder).items() if len(shape) == 2]
    known = sorted({name.rpartition(".")[2] for name in names} | {"lm_head"})  # which may be tied, and not stored
    whole = [*names, "lm_head"]
    strange = [name for name in lora.target_modules if not any(f".{each}".endswith(f".{name}") for each in whole)]
    if not names or not strange:
        return []
    message = f"the model has no module {strange[0]!r}{nearest(strange[0], known)} (known: {', '.join(known)}). "
    return [loaded.fault(("model", "lora", "target_modules"), f"{message}Name one of these, or write all-linear.")]


@reads("tools[]")
def _tool_files(loaded: LoadedSpec) -> list[Fault]:
    """Files that tools declare to read, and that are not there or are folders."""
    return _check_declared(loaded, declared_files(loaded.spec.tools))


@reads("rewards[]")
def _reward_files(loaded: LoadedSpec) -> list[Fault]:
    """The same of reward terms."""
    return _check_declared(loaded, reward_files(loaded.spec.rewards))


def _check_declared(loaded: LoadedSpec, declared: Iterable[tuple[KeyPath, str]]) -> list[Fault]:
    found = [(deepest_node(loaded.tree, path)[0], Path(file)) for path, file in declared]
    absent = [node.fault(message) for node, file in found if (message := missing_file(node, file))]
    folders = [(node, file) for node, file in found if not missing_file(node, file) and file.is_dir()]
    return absent + [node.fault(f"{shown_path(file)} is a folder. Name the files in it.") for node, file in folders]


@reads("env")
def _env_files(loaded: LoadedSpec) -> list[Fault]:
    """Files that the world names, and that are not there."""
    found = [(deepest_node(loaded.tree, path)[0], Path(file)) for path, file in env_files(loaded.spec.env)]
    return [node.fault(message) for node, file in found if (message := missing_file(node, file))]


_CERTIFICATE, _UNPROVEN = "certificate.json", frozenset({"spec.yaml", "build.yaml"})
"""Of a built world; and those of its files that no proof rests on."""


@reads("data", "tools[]", "env")
def _check_certificates(loaded: LoadedSpec) -> list[Fault]:
    """Files of built worlds, in whose folders the spec's files lie, that are not those that were proven."""
    known = {file.absolute: file.sha256 for file in loaded.files}
    tools = {path.parent.parent for path in known if path.parent.name == "tools"}
    folders = {path.parent for path in known} | tools
    faults = []
    for folder in () if loaded.spec.data.allow_edited else sorted(folders):
        proven, is_whole = _proven_files(folder / _CERTIFICATE)
        edited = [n for n, sha256 in proven if (known.get(folder / n) or identity(folder / n)) != sha256]
        edited += [] if is_whole else [_CERTIFICATE]
        if edited:
            more = f", and {len(edited) - 1} more of its files" * (len(edited) > 1)
            message = f"{shown_path(folder / edited[0])}{more}: not as proven ({_CERTIFICATE} has another hash). "
            prove = f"Prove it as it is with `rlf env prove {shown_path(folder)}`, build" if is_whole else "Build"
            fix = f"{prove} it again, or write"
            faults.append(loaded.fault(("data", "train", "path"), f"{message}{fix} `data.allow_edited: true`."))
    return faults


def _proven_files(certificate: Path) -> tuple[list[tuple[str, str]], bool]:
    """Names and hashes of the files that a built world's certificate was written for, and whether it is as it was
    written; none of another file of its name."""
    try:
        found = json.loads(certificate.read_bytes())
        files = [(str(n), str(sha256)) for n, sha256 in found["files"].items() if n not in _UNPROVEN]
        return files, is_sealed(found) and "gates" in found
    except OSError:
        return [], True
    except (ValueError, TypeError, LookupError, AttributeError):  # damaged, where a build left its settings beside it
        return [], not any((folder / "build.yaml").exists() for folder in certificate.parents[:2])


@reads("tools[]", "rewards[]")
def _check_items(loaded: LoadedSpec) -> list[Fault]:
    """Tools and reward terms: first all that their source says, then what only running it shows."""
    faults = list[Fault]()
    sound: list[Callable[[], list[Fault]]] = []
    for index, tool in enumerate(loaded.spec.tools):
        found = [*_check_tool(loaded, index, tool.target.static_complaints), *_check_examples(loaded, index)]
        faults += found
        if not found:
            sound.append(partial(_check_tool, loaded, index, tool.target.complaints))
    for index, term in enumerate(loaded.spec.rewards):
        found = _check_term(loaded, index, term.prepare_unrun)
        faults += found
        if not found:
            sound.append(partial(_check_term, loaded, index, term.prepare))
    for run in sound:
        with suppress(NotRun):
            faults += run()
    return faults


def _check_tool(loaded: LoadedSpec, index: int, complaints_of: Callable[[Mapping[str, Any]], list[str]]) -> list[Fault]:
    path: KeyPath = ("tools", index, "target")
    try:
        complaints = complaints_of(loaded.spec.tools[index].input_schema)
    except NotRun:
        raise
    except RlfError as error:
        return [loaded.fault(path, str(error))]
    return [loaded.fault(path, f"{complaint}.") for complaint in complaints]


@reads("env", "tools[]")
def _check_world(loaded: LoadedSpec) -> list[Fault]:
    """Worlds that cannot be made, and tools that cannot be described or have the name of a declared one."""
    env = loaded.spec.env
    if env is None:
        return []
    try:
        complaints = env.static_complaints() or env.complaints()
        names = [] if complaints else [tool.name for tool in env.tools]
    except NotRun:
        return []
    except RlfError as error:
        return [loaded.fault(("env",), str(error))]
    taken = [(index, tool.name) for index, tool in enumerate(loaded.spec.tools) if tool.name in names]
    words = "a tool of the world has this name. Rename or remove one of them."
    faults = [loaded.item_fault(("tools", index), f"got {name!r}, {words}") for index, name in taken]
    return [*faults, *(loaded.fault(("env",), f"{complaint}.") for complaint in complaints)]


def _check_examples(loaded: LoadedSpec, index: int) -> list[Fault]:
    """Examples that the tool's own schema refuses, but for those that expect an error."""
    tool = loaded.spec.tools[index]
    if not tool.tests:
        return []
    arguments = ArgumentCheck(tool.input_schema)
    complaints = [
        (number, arguments.complaint(test.arguments))
        for number, test in enumerate(tool.tests)
        if test.expect.error is None
    ]
    fix = "Correct it, or write `expect: {error: ...}`."
    return [
        loaded.fault(("tools", index, "tests", number, "arguments"), f"inputSchema refuses it: {complaint}. {fix}")
        for number, complaint in complaints
        if complaint is not None
    ]


def _check_term(loaded: LoadedSpec, index: int, prepare: Callable[[], None]) -> list[Fault]:
    try:
        prepare()
    except NotRun:
        raise
    except RlfError as error:
        return [loaded.fault(("rewards", index), str(error))]
    return []


@reads("tools[]", "rewards[]")
def _check_keys(loaded: LoadedSpec) -> list[Fault]:
    """Endpoints whose key the environment lacks."""
    endpoints = chain(
        _list_endpoints(loaded.spec.tools, ("tools",)), _list_endpoints(loaded.spec.rewards, ("rewards",))
    )
    return [
        loaded.fault((*path, "api_key_env"), f"the environment variable {endpoint.api_key_env} is not set. Set it.")
        for path, endpoint in endpoints
        if endpoint.api_key_env is not None and not os.environ.get(endpoint.api_key_env)
    ]


def _list_endpoints(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, EndpointSpec]]:
    """Every endpoint within a part of a spec, also those of an agent's tools."""
    if not isinstance(value, BaseModel) and not isinstance(value, list | tuple):
        return
    if is_endpoint(value):
        yield path, value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _list_endpoints(getattr(value, name), (*path, name))
    else:
        for index, item in enumerate(value):
            yield from _list_endpoints(item, (*path, index))


@reads("report_to")
def _check_trackers(loaded: LoadedSpec) -> list[Fault]:
    complaints = [(index, tracker.complaint()) for index, tracker in enumerate(loaded.spec.report_to)]
    return [loaded.fault(("report_to", index), complaint) for index, complaint in complaints if complaint is not None]
