"""The mathematics of the update: advantages, policy and value losses, KL, entropy, schedules.

Pure functions of tensors live here; models, loops and I/O do not. Callers import the submodule they use
(`from rlf.algo.losses import policy_loss`): this file stays free of torch, so that the estimators can be listed
and their settings checked without loading it. Invariant: on equal groups every number equals OpenRLHF 0.11.2's,
save where a docstring names a departure.
"""

from rlf.algo.estimator import AdvantageInput, AdvantageOutput, Estimator
from rlf.core.registry import Registry

ESTIMATORS: Registry[Estimator] = Registry(
    "advantage estimator",
    "rlf.algo.advantages",
    Estimator,  # type: ignore[type-abstract]  # the registry never makes an instance of its base
    elsewhere="estimators",
)

__all__ = ["ESTIMATORS", "AdvantageInput", "AdvantageOutput", "Estimator"]
