"""`rlf env`: worlds that tasks are played in."""

from __future__ import annotations

import typer

from rlf.cli.env_build import build_env, show_env
from rlf.cli.env_import import import_world
from rlf.cli.env_serve import serve_world
from rlf.cli.env_worlds import attack_world, list_worlds, play_world, test_world

env_app = typer.Typer(name="env", help="Build, test and show worlds.", no_args_is_help=True)
env_app.command("list")(list_worlds)
env_app.command("show")(show_env)
env_app.command("test")(test_world)
env_app.command("attack")(attack_world)
env_app.command("play")(play_world)
env_app.command("serve")(serve_world)
env_app.command("import")(import_world)
env_app.command("build")(build_env)
