"""A model to be used: a run, `RUN@STEP`, a folder, a Hugging Face id, or a model behind an endpoint.

With it comes what it is used by, as it was trained: the spec with its tools, rewards, limits and chat format. Only the
spec is loaded here; `Target.load_host` loads the model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from rlf.builtin.names import BUILTIN
from rlf.core.errors import RlfError, RunError, SpecError
from rlf.core.files import scratch
from rlf.core.mistakes import explain
from rlf.endpoints.spec import EndpointSpec
from rlf.engines.engine import Engine, HostSettings, engine_of
from rlf.lineage.records import Run, RunRecord
from rlf.plan import Plan
from rlf.runs.exports import ORIGIN, SavedModel, choose_model, trained_run
from rlf.runs.place import Places, open_reader
from rlf.runs.plans import CheckedSpec, check_spec
from rlf.runs.restore import check_changed, restore_plan
from rlf.spec import RunSpec
from rlf.spec.engines import default_engine
from rlf.spec.model_files import find_damaged_weights, folder_on_disk, model_location
from rlf.spec.paths import identity

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlf.types.policy import Host

NO_TARGET = (
    "got no target. Name a run, a folder or a Hugging Face id before the spec, e.g. `latest`, or write "
    "`--endpoint URL --model NAME`."
)
NEWEST = "newest"


@dataclass(frozen=True, slots=True)
class Target:
    """A model with what it is used by."""

    name: str
    """`RUN@STEP` with the run's whole id, the folder or id as it was written, or `MODEL at URL`."""
    spec: RunSpec
    """What it is used by. Of a model alone (`plan` is None): the defaults without tools, whose data and rewards stand
    for nothing."""
    plan: Plan | None
    """Of that spec; None for a model alone."""
    model: str | None
    """A folder or a Hugging Face id; None for an endpoint. A folder may last only as long as the target is open."""
    endpoint: EndpointSpec | None = None
    record: RunRecord | None = None
    """The run that the model is of."""
    step: int | None = None
    """The updates that a run's model has seen."""
    sha256: str | None = None
    """Of the model's folder: small files whole, large ones by samples. None for an endpoint, and a model that is not
    on this machine."""
    checked: CheckedSpec | None = None
    """The spec with its data as the checks read them; None where it was not checked."""

    def load_host(self, settings: HostSettings) -> tuple[Host, PreTrainedTokenizerBase]:
        """The model on this machine, with its tokenizer. Raises RlfError where it does not load."""
        assert self.model is not None, f"{self.name} is not on this machine"
        engine = engine_of(self.spec)
        serving = engine if engine.SERVES else default_engine()
        assert isinstance(serving, Engine), f"{serving} serves no model"
        return serving.load_host(self.model, settings)


@contextmanager
def open_target(
    name: str | None,
    files: Sequence[Path] = (),
    overrides: Sequence[str] = (),
    *,
    runs_folder: Path,
    endpoint: EndpointSpec | None = None,
    needs_data: bool = True,
    like: Run | None = None,
) -> Iterator[Target]:
    """A target, for as long as it is used.

    Args:
        name: what is used, as it was written; None for an endpoint.
        files: specs that say how it is used; none: as its run says.
        overrides: changes of that spec.
        needs_data: whether the data of a run's spec have to be there.
        like: a run whose spec it is used by, in place of its own and of `files`.

    Raises:
        RlfError: the target is no model.
        SpecError: the spec is wrong, names what is gone, or does not fit the model.
    """
    with scratch("rlf-model") as temporary:
        use = _Use(tuple(files), tuple(overrides), runs_folder, needs_data, like)
        if endpoint is not None:
            yield use.of_endpoint(endpoint)
        else:
            assert name is not None, "neither a target nor an endpoint"
            yield use.of_model(_resolve_target(name, runs_folder, temporary / "model"))


WRITER = ("--writer-endpoint", "--writer-model", "--writer-key-env")
"""Options of a model that rewrites prompts: its address, its name and its key."""


def endpoint_of(
    url: str | None,
    model: str | None,
    api_key_env: str | None = None,
    timeout_s: float = 120.0,
    options: Sequence[str] = ("--endpoint", "--model", "--api-key-env"),
) -> EndpointSpec | None:
    """A model behind an OpenAI-compatible server; None without both. Raises RlfError for what cannot be one."""
    if url is None and model is None:
        return None
    if url is None or model is None:
        raise RlfError(f"{options[0]} and {options[1]} go together: an address, and the server's name of the model.")
    try:
        return EndpointSpec(url=url, model=model, api_key_env=api_key_env, timeout_s=timeout_s)
    except ValidationError as error:
        first = error.errors()[0]
        option = options[("url", "model", "api_key_env").index(str(first["loc"][0]))]
        raise RlfError(f"{option}: {first['msg']}.") from error


@dataclass(frozen=True, slots=True)
class _Found:
    """A model, before anything is known of its use."""

    name: str
    model: str
    run: Run | None = None
    places: Places | None = None
    """Of the run."""
    step: int | None = None


def _resolve_target(name: str, runs_folder: Path, temporary: Path) -> _Found:
    """Args: temporary: where a model that is a checkpoint is written to."""
    path = Path(name).expanduser()
    if name.startswith(BUILTIN):
        if not (Path(model_location(name)) / "config.json").is_file():
            raise RlfError(f"{name}: no model, but data. Name a model, e.g. `builtin:tiny`.")
        return _Found(name, name)
    if path.is_dir() or name.startswith(("/", "./", "../", "~")):
        return _in_folder(name, path, runs_folder)
    if meant := explain("targets", name, name=name):
        raise RlfError(f"{name}: {meant[0]}")
    run_name, _, step = name.partition("@")
    if "/" in name or (not step and folder_on_disk(name) is not None):
        return _Found(name, name)
    try:
        with open_reader(runs_folder) as reader:
            reader.get_run(run_name)
    except RunError:
        raise
    except RlfError as error:
        raise RlfError(
            f"{name}: names no model: there is no such folder here, and {error} Write "
            "OWNER/NAME for a model of Hugging Face, `builtin:tiny` for a shipped one."
        ) from error
    with open_reader(runs_folder) as reader:
        run = trained_run(reader, run_name)
        source: SavedModel = choose_model(reader, run, runs_folder, step or NEWEST, name)
        folder = source.path
        if not source.is_whole:
            source.write(temporary)
            folder = temporary
        places = Places.of(run.record, reader.store)
        return _Found(f"{run.record.id}@{source.step}", str(folder.absolute()), run, places, source.step)


def _in_folder(name: str, path: Path, runs_folder: Path) -> _Found:
    if not (path / "config.json").is_file():
        there = "it is not there" if not path.is_dir() else "it has no config.json"
        raise RlfError(
            f"{name}: no model: {there}. Name a run, a folder that `rlf export` or transformers has written."
        )
    found = _Found(name, str(path.absolute()))
    if not (path / ORIGIN).is_file():
        return found
    try:
        origin = json.loads((path / ORIGIN).read_text())
        with open_reader(runs_folder) as reader:
            run = reader.get_run(origin["run"])
            return replace(found, run=run, places=Places.of(run.record, reader.store), step=int(origin["step"]))
    except (RlfError, ValueError, KeyError, TypeError):
        return found  # of a run that is not in this lineage: a model like any other


@dataclass(frozen=True, slots=True)
class _Use:
    """How a model is to be used; the fields are as of `open_target`."""

    files: tuple[Path, ...]
    overrides: tuple[str, ...]
    runs_folder: Path
    needs_data: bool
    like: Run | None

    def of_model(self, found: _Found) -> Target:
        """A model of this machine, or one to be fetched."""
        located = folder_on_disk(found.model)
        if located is not None and (fault := find_damaged_weights(located)) is not None:
            raise RlfError(f"{found.name}: its weights are damaged: {fault}. Write or fetch the model again.")
        target = Target(
            found.name,
            _plain_spec(found.model),
            None,
            model_location(found.model),
            record=None if found.run is None else found.run.record,
            step=found.step,
            sha256=None if located is None else identity(located),
        )
        path = f"model.path={json.dumps(found.model)}"
        run, places = (self.like, None) if self.like is not None else (found.run, found.places)
        if self.files:
            return _used_by(target, check_spec(self.files, [*self.overrides, path], trains=False))
        if run is not None:
            return self._as_recorded(target, run, places, path)
        if self.overrides:
            first = self.overrides[0]
            raise RlfError(f"{found.name}: has no spec that {first} could change. Name one, e.g. specs/search.yaml.")
        return target

    def of_endpoint(self, endpoint: EndpointSpec) -> Target:
        """A model behind a server: its spec names some model, whose format is not used."""
        target = Target(f"{endpoint.model} at {endpoint.url}", _plain_spec(endpoint.model), None, None, endpoint)
        if self.files:
            return _used_by(target, check_spec(self.files, self.overrides, trains=False))
        return target if self.like is None else self._as_recorded(target, self.like, None, None)

    def _as_recorded(self, target: Target, run: Run, places: Places | None, path: str | None) -> Target:
        """Args: path: the override that names the model; None where the spec's is not used."""
        if places is None:
            with open_reader(self.runs_folder) as reader:
                places = Places.of(run.record, reader.store)
        own = [] if path is None else [path, *(["~model.lora"] if run.record.plan["spec"]["model"].get("lora") else [])]
        try:
            return _used_by(target, check_changed(run.record, places, [*self.overrides, *own], trains=False))
        except SpecError as error:
            if self.needs_data or self.overrides or not all(fault.path.startswith("data") for fault in error.faults):
                raise
            plan = restore_plan(run.record, places)
            return replace(target, spec=plan.spec, plan=plan)


def _used_by(target: Target, checked: CheckedSpec) -> Target:
    return replace(target, spec=checked.plan.spec, plan=checked.plan, checked=checked)


def _plain_spec(path: str) -> RunSpec:
    """How a model alone is used: without tools, by the defaults. Its data and rewards stand for nothing."""
    return RunSpec.model_validate(
        {
            "name": "model",
            "model": {"path": path},
            "data": {"train": {"path": "none"}},
            "rewards": [{"kind": "rule", "name": "none", "rule": "tool_format"}],
            "rollout": {"max_turns": 8, "max_total_tokens": 4096},
            "train": {"algorithm": {"kind": "grpo"}},
        }
    )
