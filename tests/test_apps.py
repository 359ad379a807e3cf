"""Apps can be deleted: without some of them, all else is there and `rlf --help` lacks only their commands."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest

import rlf
from rlf.cli.commands import HOMES

_PACKAGE = Path(rlf.__file__).parent
APPS = sorted(path.parent.name for path in _PACKAGE.glob("apps/*/__init__.py"))
_TIMES, _OF = 3, 8
_PLACES = dict(zip(APPS, combinations(range(_OF), _TIMES), strict=False))
GONE = [[app for app in APPS if number in _PLACES[app]] for number in range(_OF)]
"""Parts of the apps, each app in three of its own of the eight: of any two apps, each is in one that the other is not
in, so that one that needs it fails.
"""
_LOOK = """
import gc, importlib, json, os, pkgutil, sys
from pathlib import Path

def look():
    import rlf, rlf.cli.main
    from rlf.cli.commands import COMMANDS, HOMES
    outputs = HOMES.get("schema") and importlib.import_module("rlf.apps.schema.outputs").OUTPUTS
    for name in COMMANDS:
        rlf.cli.main._load_command(name)
    for module in pkgutil.walk_packages(rlf.__path__, "rlf."):
        inside = module.name.startswith("rlf.apps.openrlhf.")  # loaded by OpenRLHF's processes, in its environment
        if module.name.startswith(("rlf.apps.", "rlf.cli.", "rlf.python.")) and not inside:
            importlib.import_module(module.name)
    return [rlf.__file__, sorted(HOMES), sorted(outputs or ()), list(COMMANDS)]

# What lies below the commands is loaded once for all forks; it imports no app, and learns later which there are.
if os.fork() == 0:
    look()
    above = ("rlf.apps", "rlf.cli", "rlf.python")
    names = [name for name, module in sys.modules.items() if not name.startswith(above) and name != "__main__"]
    Path("below.json").write_text(json.dumps(names))
    os._exit(0)
os.wait()
for name in json.loads(Path("below.json").read_text()):
    importlib.import_module(name)
assert not [name for name in sys.modules if name.startswith(("rlf.apps", "rlf.cli"))]
sys.modules["rlf.core.registry"]._entry_points.cache_clear()
gc.freeze()
Path("away").mkdir()
for names in sys.argv[1:]:
    apps = names.split(",")
    for app in apps:
        Path("rlf/apps", app).rename(Path("away", app))  # not here, where it would stand before a package of its name
    if os.fork() == 0:
        Path(names + ".json").write_text(json.dumps(look()))
        os._exit(0)
    os.wait()
    for app in apps:
        Path("away", app).rename(Path("rlf/apps", app))
"""

_KINDS_OF = {
    "estimators": ("train.algorithm", "advantage estimator", "gpg"),
    "families": ("chat.format", "chat format", "llama3"),
    "openrlhf": ("engine", "engine", "openrlhf"),
}
"""A kind that an app brings, with the key and the noun that it is of."""
_COUNTED = """
import sys
from pathlib import Path
from rlf.cli.start import main

try:
    main()
finally:
    modules = [module for name, module in sys.modules.items() if name.split(".")[0] == "rlf"]
    files = {file for module in modules if (file := getattr(module, "__file__", None))}
    print(len(files), sum(len(Path(file).read_text().splitlines()) for file in files))
"""
"""A command, and how many modules and lines of rlf it has loaded."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package, and of the bytecode that fits it."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(_PACKAGE, folder / "rlf")
    return folder


@pytest.fixture(scope="module")
def looks(copy: Path) -> str:
    """Looks at the copy without each half of the apps, which leaves a file each; the errors of those that failed."""
    return _run(copy, "-c", _LOOK, *map(",".join, GONE)).stderr


def _run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    variables = {"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"}
    return subprocess.run([sys.executable, "-P", *words], capture_output=True, text=True, env=variables, cwd=folder)


def _own(app: str) -> set[str]:
    return {name for name, home in HOMES.items() if home.startswith(f"apps.{app}.")}


@pytest.mark.parametrize("gone", GONE, ids=",".join)
def test_without_some_apps_all_else_loads_and_the_help_lacks_their_commands(
    gone: list[str], copy: Path, looks: str
) -> None:
    file = copy / f"{','.join(gone)}.json"
    assert file.exists(), looks
    place, homes, outputs, shown = json.loads(file.read_text())
    own = set[str]().union(*map(_own, gone))
    assert Path(place) == copy / "rlf" / "__init__.py"
    assert set(homes) == set(HOMES) - own
    assert not own & set(outputs)
    assert set(shown) == {name.split()[0] for name in homes}


def test_a_spec_is_checked_and_trained_without_any_app_and_within_its_budget_of_modules_and_lines(
    copy: Path, looks: str, tmp_path: Path
) -> None:
    spec, runs = str(Path(__file__).parents[1] / "specs" / "search.yaml"), str(tmp_path / "runs")
    away = (copy / "rlf" / "apps").rename(copy / "apps")
    try:
        checked = _run(copy, "-m", "rlf", "check", spec)
        swept = _run(copy, "-m", "rlf", "run", spec, "-m", "seed=0,1", "--runs", runs)
        unswept = _run(copy, "-m", "rlf", "check", spec, "seed=0,1")
        unknown = {
            app: _run(copy, "-m", "rlf", "check", spec, f"{key}={name}").stderr
            for app, (key, _, name) in _KINDS_OF.items()
        }
        trained = _run(copy, "-c", _COUNTED, "run", spec, "train.steps=1", "eval.limit=2", "--runs", runs)
    finally:
        away.rename(copy / "rlf" / "apps")
    assert "ok: search" in checked.stdout, checked.stderr
    lacking = "-m: this installation of rlf lacks the part that does it, rlf.apps.sweep."
    assert (swept.stderr.strip(), swept.returncode) == (lacking, 2)
    for app, (_, noun, name) in _KINDS_OF.items():
        message = (
            f"unknown {noun} {name!r}: this installation of rlf lacks the part that brings it, rlf.apps.{app} (known"
        )
        assert message in " ".join(unknown[app].split())
    assert "seed: got" in unswept.stderr and "Traceback" not in unswept.stderr
    assert trained.returncode == 0, trained.stderr
    num_modules, num_lines = map(int, trained.stdout.splitlines()[-1].split())
    assert num_modules <= 186
    assert num_lines <= 36_000


def test_the_core_imports_no_app() -> None:
    found = [
        f"{path.relative_to(_PACKAGE)}:{node.lineno}"
        for path in _PACKAGE.rglob("*.py")
        if "apps" not in path.relative_to(_PACKAGE).parts
        and path != _PACKAGE / "__init__.py"
        and "rlf.apps" in (code := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rlf.apps")
    ]
    assert not found
