"""Kinds are told apart without being imported."""

import importlib
import subprocess
import sys

import pytest

from rlf.spec import kinds

GUARDS = {name: guard for name, guard in vars(kinds).items() if name.startswith("is_")}
HOMES = {
    "EnvTerm": "rlf.rewards.kinds.env",
    "Unpenalised": "rlf.rewards.rules.unpenalised",
    "EndpointSpec": "rlf.endpoints.spec",
    "Gae": "rlf.algo.advantages.gae",
}


def kind_of(guard):
    name = kinds.__annotations__[guard].removeprefix("Callable[[object], TypeGuard[").removesuffix("]]")
    return getattr(importlib.import_module(HOMES[name]), name)


@pytest.mark.parametrize("name", GUARDS)
def test_a_guard_knows_its_own_kind_and_what_inherits_from_it_and_no_other(name):
    kind = kind_of(name)
    heir = type("Heir", (kind,), {"__module__": "package.of.others"})
    assert GUARDS[name](kind.model_construct()) and GUARDS[name](heir.model_construct())
    others = {other for other in GUARDS.values() if other(kind.model_construct())}
    assert others == {GUARDS[name]}


def test_a_check_of_the_shipped_spec_stays_within_its_budget_of_modules_and_lines():
    code = """
import contextlib, io, pathlib, sys
sys.argv = ["rlf", "check", "specs/search.yaml"]
from rlf.cli.start import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    main()
files = {m.__file__ for n, m in list(sys.modules.items()) if n.split(".")[0] == "rlf" and getattr(m, "__file__", None)}
print(len(files), sum(len(pathlib.Path(f).read_text().splitlines()) for f in files))
"""
    checks = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in "ab"]
    num_modules, num_lines = map(int, checks[-1].stdout.split())  # the first may be the one that rlf remembers
    assert num_modules <= 101
    assert num_lines <= 16_100
