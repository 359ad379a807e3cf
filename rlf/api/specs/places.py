"""Where a job of OpenRLHF runs: with this Python on the GPUs that it finds, or on this CPU.

It is this CPU for whoever started rlf from the environment of rehearsals, as a rehearsal in full has it: a spec is
changed only where a CPU cannot do what it asks for, and every change is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import rlf
from rlf.api.specs.plans import Checked, check_spec
from rlf.engines.openrlhf.job.place import Place
from rlf.engines.openrlhf.rehearse.env import SHIM, STANDIN, RehearsalEnvironment, environment_here
from rlf.engines.openrlhf.rehearse.spec import Change, place_changes
from rlf.plan import Plan
from rlf.plan.layout import Layout
from rlf.spec.engines.openrlhf import OpenRlhfEngineSpec
from rlf.types.events import Notice

_CPUS, _OBJECT_STORE_BYTES = 16, 2**29


@dataclass(frozen=True, slots=True)
class Fitted:
    """A spec as it can run at a place."""

    checked: Checked
    place: Place | None = None
    """None: with this Python."""
    notices: tuple[Notice, ...] = ()
    """What is told of the place, and of what it changed."""


def fit_here(files: Sequence[Path], overrides: Sequence[str], checked: Checked) -> Fitted:
    """A checked spec as it runs from this Python: a job of OpenRLHF on this CPU, in the environment of rehearsals.

    Raises:
        SpecError: the spec is wrong once it is changed for a CPU.
    """
    environment = environment_here()
    if environment is None or not isinstance(checked.plan.spec.engine, OpenRlhfEngineSpec):
        return Fitted(checked)
    return fit_to_cpu(files, overrides, checked, environment, vllm=environment.is_ready(vllm=True))


def fit_to_cpu(
    files: Sequence[Path], overrides: Sequence[str], checked: Checked, environment: RehearsalEnvironment, *, vllm: bool
) -> Fitted:
    """A checked spec of OpenRLHF without what a CPU cannot do, and the place for it."""
    changes = place_changes(checked.plan.spec, vllm=vllm)
    fitted = check_spec(files, [*overrides, *(change.override for change in changes)]) if changes else checked
    place = cpu_place(environment, fitted.plan, vllm=vllm)
    return Fitted(fitted, place, (_told(environment, changes), *([] if vllm else [_standin_samples(environment)])))


def place_here(plan: Plan) -> Place | None:
    """The place of a plan that is run as it is; None: with this Python, which says what it lacks."""
    environment = environment_here()
    if environment is None or not isinstance(plan.spec.engine, OpenRlhfEngineSpec):
        return None
    vllm = environment.is_ready(vllm=True)
    return None if place_changes(plan.spec, vllm=vllm) else cpu_place(environment, plan, vllm=vllm)


def cpu_place(environment: RehearsalEnvironment, plan: Plan, *, vllm: bool) -> Place:
    """This machine's CPU, counted by Ray as the GPUs that the job asks for."""
    assert isinstance(plan.spec.engine, OpenRlhfEngineSpec), f"a place for engine {plan.spec.engine.kind}"
    return Place(
        python=str(environment.python),
        paths=tuple(map(str, [SHIM, *([] if vllm else [STANDIN]), *_source_folders()])),
        variables=environment.variables(),
        num_gpus=Layout.of(plan.spec).total_gpus(plan.spec.engine),
        num_cpus=_CPUS,
        object_store_bytes=_OBJECT_STORE_BYTES,
        name=f"cpu with {'vLLM' if vllm else 'a stand-in for vLLM'}",
    )


def _source_folders() -> list[Path]:
    """Where rlf itself lies, unless it is installed: the job runs the very same."""
    folder = Path(rlf.__file__).parents[1]
    return [] if folder.name.endswith("-packages") else [folder]


def _told(environment: RehearsalEnvironment, changes: Sequence[Change]) -> Notice:
    """One line: where the job runs, and what was changed for that, each with its reason."""
    changed = "; ".join(f"{change.override} ({change.reason})" for change in changes) or "nothing"
    text = f"the job runs on this CPU, in the environment of rehearsals {environment.folder}; changed for it: {changed}"
    return Notice("info", text, {"place": "cpu", "changes": [change.override for change in changes]})


def _standin_samples(environment: RehearsalEnvironment) -> Notice:
    text = (
        f"vLLM ITSELF DOES NOT SAMPLE: it is not in {environment.folder}, and a stand-in takes its place. Install it "
        f"with `{environment.command} rehearse --setup --vllm`."
    )
    return Notice("warning", text, {"place": "cpu", "standin": True})
