"""Whether a part of a spec is of one kind, asked without importing the kind.

Kinds bring runtimes, servers and judges along; a check that asks here loads none of it for a spec that names others. An
object's class has been imported, or there would be no object: its name and its module's are all that is compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from rlf.algo.advantages.gae import Gae
    from rlf.endpoints.spec import EndpointSpec
    from rlf.rewards.kinds.env import EnvTerm
    from rlf.rewards.rules.unpenalised import Unpenalised


def _of(module: str, name: str) -> Any:
    """Whether the class of a part is a kind's, or inherits from it, as one of an installed package may."""
    return lambda part: any(known.__name__ == name and known.__module__ == module for known in type(part).__mro__)


is_env_term: Callable[[object], TypeGuard[EnvTerm]] = _of("rlf.rewards.kinds.env", "EnvTerm")
"""Whether a reward term is `kind: env`."""
is_unpenalised: Callable[[object], TypeGuard[Unpenalised]] = _of("rlf.rewards.rules.unpenalised", "Unpenalised")
"""Whether a reward term is `rule: unpenalised`."""
is_endpoint: Callable[[object], TypeGuard[EndpointSpec]] = _of("rlf.endpoints.spec", "EndpointSpec")
"""Whether a part is a model behind a server, of whatever kind of tool or term it is a key."""
is_gae: Callable[[object], TypeGuard[Gae]] = _of("rlf.algo.advantages.gae", "Gae")
"""Whether an estimator is `gae`."""
