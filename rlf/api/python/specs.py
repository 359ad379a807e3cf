"""`rlf.check` and `rlf.plan_run`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rlf.api.python.calls import AnyPath, Files, Overrides, as_command, to_paths, to_texts
from rlf.api.specs.plans import check_spec
from rlf.core.callables import foreign_code
from rlf.core.errors import Fault, SpecError
from rlf.core.plain_json import Jsonable
from rlf.spec.layers import absolute

if TYPE_CHECKING:
    from rlf.api.specs.planning import PlanReport


@dataclass(frozen=True, slots=True)
class CheckedMember:
    """A sweep's member without faults."""

    name: str
    plan_hash: str
    overrides: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Check(Jsonable):
    """Faults and warnings of a spec, or of every member of a sweep."""

    faults: tuple[Fault, ...]
    """Everything that is wrong, each with its place; empty for a spec that can run."""
    warnings: tuple[Fault, ...] = ()
    """What is legal and unwise."""
    name: str | None = field(default=None, metadata={"optional": True})
    """The spec's own; None where it has faults, as are the facts below."""
    plan_hash: str | None = field(default=None, metadata={"optional": True})
    num_train_rows: int | None = field(default=None, metadata={"json": None})
    num_eval_rows: int | None = field(default=None, metadata={"json": None})
    members: tuple[CheckedMember, ...] | None = field(default=None, metadata={"optional": True})
    """Of a sweep, in place of name and hash."""
    JSON_PROPERTIES: ClassVar = ("ok",)

    @property
    def ok(self) -> bool:
        """Whether there are no faults."""
        return not self.faults

    def raise_for_faults(self) -> None:
        """Raises SpecError with every fault, if there is one."""
        if self.faults:
            raise SpecError(self.faults)

    def __str__(self) -> str:
        lines = [*map(str, self.faults), *(f"warning: {warning}" for warning in self.warnings)]
        return "\n".join([*lines, *([f"{self.name}: ok"] if self.ok else [])])


def check(
    spec: Files,
    overrides: Overrides = (),
    *,
    texts: Mapping[AnyPath, str] | None = None,
    import_code: bool = True,
) -> Check:
    """Looks for every fault of a spec and of what it names. Trains nothing and calls no tool.

    Args:
        texts: texts that are read in place of files, by path: what an editor holds and has not saved.
        import_code: whether Python that the spec names is imported and its MCP servers are started; False for a spec
            that you do not trust.
    """
    unsaved = {absolute(Path(path), Path.cwd()): text for path, text in (texts or {}).items()}
    try:
        with as_command(), nullcontext() if import_code else foreign_code(None):
            found = check_spec(to_paths(spec), to_texts(overrides), texts=unsaved)
    except SpecError as error:
        return Check(error.faults)
    rows = (found.num_train_rows, found.num_eval_rows)
    return Check((), found.warnings, found.plan.spec.name, found.plan.plan_hash, *rows)


def plan_run(
    spec: Files, overrides: Overrides = (), *, gpu: str | None = None, runs_folder: AnyPath = "runs"
) -> PlanReport:
    """Plans a run: its values and where each comes from, files, work, memory, time. Loads no torch.

    Args:
        gpu: size of the GPU that the run is meant for, e.g. `24GB`; None for this machine.
        runs_folder: where earlier runs of the same plan are looked for.

    Raises:
        SpecError: the spec has faults.
    """
    from rlf.api.specs.planning import report_plan

    with as_command():
        return report_plan(to_paths(spec), to_texts(overrides), gpu=gpu, runs_folder=Path(runs_folder))
