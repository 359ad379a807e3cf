"""Coding agents, unchanged but for their address, each in a folder of its own, driven by a scripted policy.

    python benchmarks/foreign/coding_agents.py [NAME]...

Prints the certificate of each: calls, rows, why a row began, the trained share, and whether every sample stands once
behind the tokens that it was sampled behind. `CODING_AGENTS` is a folder with `node_modules/.bin` (`npm install
@qwen-code/qwen-code @anthropic-ai/claude-code opencode-ai @openai/codex`), `FRAMEWORKS` a Python with mini-swe-agent,
`OPENHANDS` a Python (3.12 or later) with openhands-sdk and openhands-tools.
Nothing leaves this machine: the agents know the session's address alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from rlf.apps.serve.agents import AgentServer
from rlf.builtin.names import builtin_path
from rlf.chat.encoding import load_tokenizer
from rlf.chat.format import open_format
from rlf.rollout.loop import Setting
from rlf.rollout.rollout import Rollout, RolloutLimits
from rlf.rollout.scripted import ScriptedPolicy
from rlf.spec.agent import AgentSpec
from rlf.tools.execution.executor import Executor
from rlf.types import Message, Task
from rlf.types.policy import SampleRequest, Sampling

NODE = Path(os.environ.get("CODING_AGENTS", ".")) / "node_modules/.bin"
PYTHON = Path(os.environ.get("FRAMEWORKS", sys.executable)).parent
OPENHANDS = Path(os.environ.get("OPENHANDS", sys.executable))
OPENHANDS_PROGRAM = """
import os, sys
from openhands.sdk import LLM, Agent, Conversation, Tool
from openhands.tools.terminal import TerminalTool
given = {"base_url": os.environ["OPENAI_BASE_URL"], "api_key": os.environ["OPENAI_API_KEY"]}
llm = LLM(model="openai/policy", reasoning_effort=None, **given)
agent = Agent(llm=llm, tools=[Tool(name=TerminalTool.name)])
conversation = Conversation(agent=agent, workspace=os.getcwd(), visualizer=None)
conversation.send_message(sys.argv[1])
conversation.run()
"""
OFFLINE = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "MSWEA_CONFIGURED": "true",
    "MSWEA_COST_TRACKING": "ignore_errors",
    "MSWEA_SILENT_STARTUP": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENHANDS_SUPPRESS_BANNER": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "NO_PROXY": "127.0.0.1",
}
PROVIDER = {
    "autoupdate": False,
    "share": "disabled",
    "provider": {
        "rlf": {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": "{env:OPENAI_BASE_URL}", "apiKey": "{env:OPENAI_API_KEY}"},
            "models": {"policy": {"limit": {"context": 200000, "output": 4000}}},
        }
    },
}
LAST = {
    "mini": '<tool_call>\n{"name": "bash", "arguments": {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}}'
    "\n</tool_call>"
}
"""What an agent is answered in the end, where that is no text."""
AGENTS: dict[str, tuple[str, dict[str, str], tuple[str, dict[str, str]]]] = {
    "qwen": (
        f"{NODE}/qwen -p {{{{ prompt }}}} --auth-type openai --yolo",
        {"OPENAI_MODEL": "policy"},
        ("run_shell_command", {"command": "echo Paris", "description": "d", "is_background": "false"}),
    ),
    "claude": (
        f"{NODE}/claude -p {{{{ prompt }}}} --allowedTools Bash --model policy",
        {"ANTHROPIC_MODEL": "policy", "ANTHROPIC_SMALL_FAST_MODEL": "policy"},
        ("Bash", {"command": "echo Paris", "description": "d"}),
    ),
    "opencode": (
        f"{NODE}/opencode run -m rlf/policy {{{{ prompt }}}}",
        {"OPENCODE_CONFIG_CONTENT": json.dumps(PROVIDER)},
        ("bash", {"command": "echo Paris", "description": "d"}),
    ),
    "codex": (
        f"{NODE}/codex exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox -m policy "
        "-c features.multi_agent=false -c web_search=disabled -c model_provider=rlf -c model_providers.rlf.name=rlf "
        "-c model_providers.rlf.base_url={{ session.url }} -c model_providers.rlf.env_key=OPENAI_API_KEY {{ prompt }}",
        {},
        ("exec_command", {"cmd": "echo Paris"}),
    ),
    "openhands": (
        f"{OPENHANDS} -c '{OPENHANDS_PROGRAM}' {{{{ prompt }}}}",
        {},
        ("terminal", {"command": "echo Paris", "security_risk": "LOW", "summary": "prints"}),
    ),
    "mini": (
        f"{PYTHON}/mini -t {{{{ prompt }}}} -y --exit-immediately -m openai/policy",
        {},
        ("bash", {"command": "echo Paris"}),
    ),
}


async def certify(name: str) -> None:
    """Plays one task, and prints."""
    command, env, (tool, arguments) = AGENTS[name]
    tokenizer = load_tokenizer(str(builtin_path("tiny")))
    chat = open_format("auto", tokenizer, [])
    called = json.dumps({"name": tool, "arguments": arguments})

    def decide(request: SampleRequest) -> str:
        # By the last message alone: system messages show examples of calls.
        shown = chat.decode(request.tokens[-4000:])
        told = shown[shown.rfind("<|im_start|>user") :]
        if "tool_response" in told or tool not in chat.decode(request.tokens):
            return f"{LAST.get(name, 'Paris')}<|im_end|>"
        return f"<tool_call>\n{called}\n</tool_call><|im_end|>"

    script: list[Callable[[SampleRequest], str]] = [decide] * 12
    policy = ScriptedPolicy(tokenizer, script, logprob=-0.5)
    limits = RolloutLimits(max_turns=12, max_total_tokens=200_000)
    setting = Setting(policy, chat, Executor(()), limits, Sampling(stop_token_ids=chat.stop_token_ids))
    agent = AgentSpec(command=command, env=OFFLINE | env, timeout_s=240, max_calls=12)
    async with AgentServer(agent, tokenizer) as server:
        player = server.player(setting, overrides=True)
        player.open(["r"])
        found = await player.play(Rollout("r", Task("t", (Message("user", "Print Paris by your shell."),)), 0, seed=3))
    rows, wrong = dict(found.stretches), 0
    drawn = sorted((r.tokens, tuple(s.tokens)) for r, s in zip(policy.requests, policy.samples, strict=True))
    kept = []
    for turn in found.turns:
        start = max(begin for begin in rows if begin <= turn.start)
        kept.append((tuple(found.tokens[start : turn.start]), tuple(found.tokens[turn.start : turn.end])))
    wrong = sum(one != other for one, other in zip(sorted(kept), drawn, strict=False)) + abs(len(kept) - len(drawn))
    state = dict(found.world.final_state or {}) if found.world else {}
    told = str(state.pop("output", ""))[-300:]
    links = [turn.link or "continues" for turn in found.turns]
    sizes = [len(request.tokens) for request in policy.requests]
    calls = [(one.call.name, one.result.text[:60]) for one in found.calls]
    print(name, found.stop.value, repr(found.answer), "links", links, "prompts", sizes, "wrong", wrong, state)
    print("   calls", calls, "error", found.error, "output", repr(told), flush=True)


def main() -> None:
    """Certifies."""
    for name in sys.argv[1:] or AGENTS:
        asyncio.run(certify(name))


if __name__ == "__main__":
    main()
