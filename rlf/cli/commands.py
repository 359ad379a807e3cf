"""Every command: what it is for, its line in `rlf --help`, and the function that runs it. Loads none of them.

A command of an app is there as long as the app's folder is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rlf.core.registry import is_present

SECTIONS: dict[str, dict[str, str]] = {
    "Start": {
        "init": "Make a project folder: spec, tools, rewards, data and a README.",
        "doctor": "Check Python, packages, machine, lineage and sandbox.",
    },
    "Check": {
        "check": "Report every fault of a spec and of its files. Trains nothing.",
        "plan": "Show the compiled plan: values with their origin, files, work and memory.",
        "forecast": "Say what a run's first steps will be like, with what to change. Trains nothing.",
        "chaos": "Run a spec under faults of its machine, and look for what was lost.",
        "rehearse": "Run an OpenRLHF job on this CPU with your tools, your rewards and a tiny model.",
        "schema": "Print the JSON Schema of specs, tools, rewards and outputs.",
    },
    "Train": {
        "run": "Train a model as a spec says.",
        "climb": "Teach a model by the cheapest way that is enough: prompt, demonstrations, rewards.",
        "prompt": "Search system message and tool descriptions on a spec's tasks. Trains nothing.",
        "resume": "Continue a run or a sweep from its last checkpoint.",
    },
    "Look": {
        "runs": "List, show, compare, export, import and remove runs.",
        "trace": "Show a trajectory turn by turn, or find trajectories.",
        "why": "Say why a run got worse, or which turn of a trajectory decided.",
        "web": "Open a page in the browser: runs, trajectories, specs, tools.",
    },
    "Use": {
        "eval": "Evaluate runs, checkpoints, models and endpoints with a spec's tools and rewards.",
        "demos": "Write demonstrations to imitate: solutions, runs, a teacher's, files.",
        "bench": "Try models on benchmarks of others, with their own checkers.",
        "chat": "Chat with a model; its tools run.",
        "serve": "Serve a model to OpenAI-compatible clients.",
        "export": "Write a run's model as a Hugging Face folder.",
        "mcp": "Serve these commands to an MCP client, such as a coding agent.",
        "verify": "Say which sentences of an exported model's card are proven.",
    },
    "Parts": {
        "tools": "List, test, benchmark, import and serve tools.",
        "rewards": "List, test, score and attack rewards.",
        "env": "Build, test and play environments.",
        "format": "Show prompts and how turns are parsed.",
        "agent": "Try an agent of your own before training.",
    },
}
"""Commands by what they are for, each with one line."""

_HOMES: dict[str, str] = {
    "init": "apps.init.command:init",
    "doctor": "apps.doctor.command:doctor",
    "check": "cli.check:check_command",
    "plan": "cli.plan:plan",
    "chaos": "apps.chaos.command:chaos_command",
    "rehearse": "apps.rehearse.command:rehearse_command",
    "schema": "apps.schema.command:schema",
    "run": "cli.run:run_command",
    "climb": "apps.climb.command:climb_command",
    "prompt": "apps.prompt.command:prompt",
    "resume": "cli.resume:resume_command",
    "trace": "apps.look.command:trace",
    "why": "apps.evaluate.command:why",
    "web": "apps.web.command:web",
    "eval": "apps.evaluate.command:evaluate_command",
    "forecast": "apps.evaluate.command:forecast_command",
    "demos": "apps.demos.command:demos",
    "bench": "apps.bench.command:bench_command",
    "chat": "apps.chat.command:chat",
    "serve": "apps.serve.command:serve_command",
    "export": "apps.keep.command:export_command",
    "mcp": "apps.mcp.command:serve_commands",
    "verify": "apps.keep.command:verify_model_command",
    "runs compare": "apps.compare.command:compare_command",
    "runs tail": "apps.look.command:tail_run",
    "runs reproduce": "apps.keep.command:reproduce_run",
    "runs fork": "apps.keep.command:fork_run",
    "runs branch": "apps.evaluate.command:branch_trajectory",
    "runs diff": "apps.keep.command:diff_runs_command",
    "runs whence": "apps.keep.command:whence_command",
    "runs tag": "apps.keep.command:tag_run",
    "runs note": "apps.keep.command:note_run",
    "runs rm": "apps.keep.command:remove_runs",
    "runs gc": "apps.keep.command:thin_runs",
    "runs verify": "apps.keep.command:verify_lineage",
    "runs salvage": "apps.keep.command:salvage_runs",
    "runs export": "apps.keep.command:export_runs_command",
    "runs import": "apps.keep.command:import_runs_command",
    "runs list": "apps.look.command:list_runs_command",
    "runs show": "apps.look.command:show_run_command",
    "tools import": "apps.imports.command:import_tools",
    "tools serve": "apps.offer.command:serve_tools",
    "tools list": "apps.tools.command:list_tools_command",
    "tools show": "apps.tools.command:show_tool_command",
    "tools test": "apps.tools.command:test_tools",
    "tools bench": "apps.tools.command:bench_one",
    "rewards attack": "apps.attack.command:attack_rewards",
    "rewards calibrate": "apps.judges.command:calibrate_rewards",
    "rewards list": "apps.rewards.command:list_rewards_command",
    "rewards show": "apps.rewards.command:show_reward",
    "rewards test": "apps.rewards.command:test_rewards",
    "rewards score": "apps.rewards.command:score_rewards",
    "env list": "apps.worlds.command:list_worlds_command",
    "env show": "cli.env:show_env",
    "env prove": "cli.env:prove_env",
    "env attack": "apps.worlds.command:attack_world",
    "env play": "apps.worlds.command:play_world_command",
    "env serve": "apps.offer.command:serve_world_command",
    "env import": "apps.imports.command:import_world_command",
    "env build": "apps.build.command:build_command",
    "format show": "apps.formats.command:show_command",
    "format parse": "apps.formats.command:parse_command",
    "format certify": "apps.formats.command:certify_command",
    "agent certify": "apps.serve.command:certify_agent_command",
}
"""Module and function, below `rlf`, of each command in the order of its group's help."""

GROUPS: dict[str, str] = {
    "runs": "List runs and look into them.",
    "tools": "List tools and try them out.",
    "rewards": "List reward terms and try them out.",
    "env": "Build, test and show worlds.",
    "format": "Show prompts, and how rlf parses turns.",
    "agent": "Try out an agent of your own.",
}
"""Words that several commands begin with, each with the help of the group."""


HOMES: Mapping[str, str] = {name: home for name, home in _HOMES.items() if is_present(home)}
"""Those that are here."""
COMMANDS = tuple(
    name
    for summaries in SECTIONS.values()
    for name in summaries
    if name in HOMES or any(home.startswith(f"{name} ") for home in HOMES)
)
"""The first words of command lines, in the order of the help."""


def members(group: str) -> Iterator[tuple[str, str]]:
    """The second words of a group's commands, with their functions."""
    return ((name.partition(" ")[2], home) for name, home in HOMES.items() if name.partition(" ")[0] == group)
