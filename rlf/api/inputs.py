"""From a plan to what an engine reads: tasks and the model's place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlf.builtin.names import BUILTIN, builtin_path
from rlf.data import load_tasks
from rlf.plan import Plan

if TYPE_CHECKING:
    from rlf.engines.local.engine import Inputs


def load_inputs(plan: Plan) -> Inputs:
    """Loads the datasets and resolves the model's name. Raises SpecError where a row or column is wrong."""
    from rlf.engines.local.engine import Inputs

    data = plan.spec.data
    evaluation = [] if data.eval is None else load_tasks(**data.eval.model_dump())[: plan.spec.eval.limit]
    return Inputs(model_location(plan.spec.model.path), load_tasks(**data.train.model_dump()), evaluation)


def model_location(path: str) -> str:
    """The folder of a builtin model; any other path as it is."""
    return str(builtin_path(path.removeprefix(BUILTIN))) if path.startswith(BUILTIN) else path
