"""This CPU as the place of a job: for those who start rlf from the environment of rehearsals, and for `rlf rehearse`.

A spec is changed only where a CPU cannot do what it asks for, and every change is reported.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import rlf
from rlf.core.errors import RlfError
from rlf.engines.engine import Fit
from rlf.engines.openrlhf.job.place import Place
from rlf.engines.openrlhf.layout import Layout
from rlf.engines.openrlhf.rehearse.env import (
    SHIM,
    STANDIN,
    TORCHVISION,
    RehearsalEnvironment,
    environment_here,
    rehearsal_environment,
)
from rlf.engines.openrlhf.rehearse.spec import place_changes
from rlf.engines.openrlhf.settings import openrlhf_settings
from rlf.spec import RunSpec
from rlf.spec.model_files import folder_on_disk, read_config
from rlf.types.events import Notice

_CPUS, _OBJECT_STORE_BYTES = 16, 2**29


@dataclass(frozen=True, slots=True)
class CpuPlace:
    """This machine's CPU, with the packages of an environment of rehearsals."""

    environment: RehearsalEnvironment
    vllm: bool
    """Whether vLLM itself samples, and not its stand-in."""

    @classmethod
    def here(cls) -> Self | None:
        """That of the environment which runs this process; None in any other."""
        environment = environment_here()
        return None if environment is None else cls(environment, environment.is_ready(vllm=True))

    @classmethod
    def ready(cls, spec: RunSpec, *, vllm: bool) -> Self:
        """That of the user's environment. Raises RlfError where it is not made, or lacks what a spec needs."""
        environment = rehearsal_environment()
        if not environment.is_ready(vllm=vllm):
            option = " --vllm" if vllm else ""
            raise RlfError(
                f"{environment.folder}: the environment for rehearsals does not exist yet. Make it once with "
                f"`rlf rehearse --setup{option}`; this needs a network."
            )
        folder = folder_on_disk(spec.model.path)
        if folder is not None and "vision_config" in read_config(folder) and not environment.takes_images:
            raise RlfError(
                f"model.path: {spec.model.path!r} sees, and {environment.folder} has no {TORCHVISION}, which could "
                f"not be installed. Run `rlf rehearse --setup` where it can be had; {environment.log} has pip's words."
            )
        return cls(environment, vllm)

    def for_job(self, spec: RunSpec) -> Place:
        """The place of a spec's job: Ray counts this CPU as the GPUs that it asks for."""
        return Place(
            python=str(self.environment.python),
            paths=tuple(map(str, [SHIM, *([] if self.vllm else [STANDIN]), *_source_folders()])),
            variables=self.environment.variables(),
            num_gpus=Layout.of(spec).total_gpus(openrlhf_settings(spec)),
            num_cpus=_CPUS,
            object_store_bytes=_OBJECT_STORE_BYTES,
            name=f"cpu with {'vLLM' if self.vllm else 'a stand-in for vLLM'}",
        )

    def fit(self, spec: RunSpec) -> Fit:
        """A spec without what a CPU cannot do, and what is reported of that."""
        changes = tuple(place_changes(openrlhf_settings(spec), vllm=self.vllm))
        changed = "; ".join(f"{change.override} ({change.reason})" for change in changes) or "nothing"
        folder, data = self.environment.folder, {"place": "cpu", "changes": [change.override for change in changes]}
        text = f"the job runs on this CPU, in the environment of rehearsals {folder}; changed for that: {changed}"
        notices = [Notice("info", text, data), *([] if self.vllm else [self._warn_of_standin()])]
        return Fit(changes, tuple(notices), self)

    def _warn_of_standin(self) -> Notice:
        if self.environment.is_ready(vllm=True):
            why, advice = "`--vllm` was not given", "Add `--vllm` to sample with vLLM."
        else:
            why = f"it is not in {self.environment.folder}"
            advice = f"Install it with `{self.environment.command} rehearse --setup --vllm`."
        text = f"vLLM ITSELF DOES NOT SAMPLE: {why}, and a stand-in samples instead. {advice}"
        return Notice("warning", text, {"place": "cpu", "standin": True})


def find_place(spec: RunSpec, place: object | None) -> Place | None:
    """The place of a spec's job, from what a `Fit` names or from where this process stands; None: with this Python."""
    if isinstance(place, Place):
        return place
    if isinstance(place, CpuPlace):
        return place.for_job(spec)
    assert place is None, f"a place of another engine: {place}"
    cpu = CpuPlace.here()
    return None if cpu is None or cpu.fit(spec).changes else cpu.for_job(spec)


def _source_folders() -> list[Path]:
    """Where rlf itself lies, unless it is installed: the job runs the very same."""
    folder = Path(rlf.__file__).parents[1]
    return [] if folder.name.endswith("-packages") else [folder]
