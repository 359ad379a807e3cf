"""`rlf env`: worlds that tasks are played in."""

from __future__ import annotations

import typer

from rlf.cli.env_build import build_env, show_env

env_app = typer.Typer(name="env", help="Build worlds and look at them.", no_args_is_help=True)
env_app.command("build")(build_env)
env_app.command("show")(show_env)
