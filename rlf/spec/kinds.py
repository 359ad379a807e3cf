"""Whether a part of a spec is of one kind, asked without importing the kind.

Kinds bring runtimes, servers and judges along; a check that asks here loads none of it for a spec that names others. An
object's class has been imported, or there would be no object: its name and its module's are all that is compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from rlf.algo.advantages.gae import Gae
    from rlf.algo.advantages.pass_at_k import PassAtK
    from rlf.endpoints.spec import EndpointSpec
    from rlf.rewards.kinds.env import EnvTerm
    from rlf.rewards.kinds.judge import JudgeTerm
    from rlf.rewards.kinds.verify import VerifyTerm
    from rlf.rewards.rules.json_schema import JsonSchema
    from rlf.rewards.rules.unpenalised import Unpenalised
    from rlf.tools.kinds.agent import AgentTool
    from rlf.tools.kinds.mcp import McpTool
    from rlf.tools.kinds.sql import SqlTool


def _is_of(part: object, module: str, name: str) -> bool:
    """Whether the class of a part is a kind's, or inherits from it, as one of an installed package may."""
    return any(known.__name__ == name and known.__module__ == module for known in type(part).__mro__)


def is_agent_tool(part: object) -> TypeGuard[AgentTool]:
    """Whether a tool's target is `kind: agent`."""
    return _is_of(part, "rlf.tools.kinds.agent", "AgentTool")


def is_mcp_tool(part: object) -> TypeGuard[McpTool]:
    """Whether a tool's target is `kind: mcp`."""
    return _is_of(part, "rlf.tools.kinds.mcp", "McpTool")


def is_sql_tool(part: object) -> TypeGuard[SqlTool]:
    """Whether a tool's target is `kind: sql`."""
    return _is_of(part, "rlf.tools.kinds.sql", "SqlTool")


def is_judge(part: object) -> TypeGuard[JudgeTerm]:
    """Whether a reward term is `kind: judge`."""
    return _is_of(part, "rlf.rewards.kinds.judge", "JudgeTerm")


def is_verify(part: object) -> TypeGuard[VerifyTerm]:
    """Whether a reward term is `kind: verify`."""
    return _is_of(part, "rlf.rewards.kinds.verify", "VerifyTerm")


def is_env_term(part: object) -> TypeGuard[EnvTerm]:
    """Whether a reward term is `kind: env`."""
    return _is_of(part, "rlf.rewards.kinds.env", "EnvTerm")


def is_json_schema(part: object) -> TypeGuard[JsonSchema]:
    """Whether a reward term is `rule: json_schema`."""
    return _is_of(part, "rlf.rewards.rules.json_schema", "JsonSchema")


def is_unpenalised(part: object) -> TypeGuard[Unpenalised]:
    """Whether a reward term is `rule: unpenalised`."""
    return _is_of(part, "rlf.rewards.rules.unpenalised", "Unpenalised")


def is_endpoint(part: object) -> TypeGuard[EndpointSpec]:
    """Whether a part is a model behind a server, of whatever kind of tool or term it is a key."""
    return _is_of(part, "rlf.endpoints.spec", "EndpointSpec")


def is_gae(part: object) -> TypeGuard[Gae]:
    """Whether an estimator is `gae`."""
    return _is_of(part, "rlf.algo.advantages.gae", "Gae")


def is_pass_at_k(part: object) -> TypeGuard[PassAtK]:
    """Whether an estimator is `pass_at_k`."""
    return _is_of(part, "rlf.algo.advantages.pass_at_k", "PassAtK")
