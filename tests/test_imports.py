"""The graph of imports, drawn from the source: those inside of functions and for type checkers count too."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_PAIRS = frozenset({("rlf.spec.layers", "rlf.spec.layers")})
"""Files that import each other; larger circles are never allowed."""
_FRAMES = "rlf.sandbox.guest.wire"
_START = re.compile(
    r"subprocess\.(Popen|run|call|check_\w+|get\w*output)|os\.(fork\w*|system|popen|posix_spawnp?|spawn\w+)|pty\.\w+"
    r"|.*\bcreate_subprocess_\w+|.*\.subprocess_(exec|shell)|multiprocessing\.(\w+\.)*(Process|Pool|Manager|get_context)|.*\bProcessPoolExecutor"
)
_STARTERS = {
    "rlf/sandbox/guest/server.py": "a sandbox shows its processes nothing else of rlf",
    "rlf/apps/serve/agents/bridge.py": "nor does that of an agent's program",
    "rlf/apps/chaos/chaos.py": "runs begin as from the shell of a user, whose signals they heed",
    "rlf/apps/web/vendor/build.py": "maintainers run it by hand, when the page's libraries change",
}
"""Files outside of `rlf.processes` that start processes, each with its reason."""

_FOLDERS = {
    "rlf/apps/openrlhf/process.py": "Ray's sockets need a short path; it finds those of killed jobs itself",
    "rlf/apps/serve/agents/programs.py": "they are in one of `rlf.core.files.scratch`",
    "rlf/apps/peers/workers/verifiers_tasks.py": "it runs where there is no rlf",
    "rlf/apps/web/vendor/build.py": "maintainers run it by hand",
}
"""Files that make folders for temporary files by other means than `rlf.core.files.scratch`, each with its reason."""


@cache
def _graph() -> Mapping[str, frozenset[str]]:
    """What each file of rlf imports of rlf; but for `rlf` itself, whose names are fetched when they are used."""
    files = {_module(path): path for path in (_ROOT / "rlf").rglob("*/**/*.py")}
    return {name: frozenset(_imported(name, path, files)) - {name} for name, path in files.items()}


def _module(path: Path) -> str:
    return ".".join(path.relative_to(_ROOT).with_suffix("").parts).removesuffix(".__init__")


def _imported(name: str, path: Path, files: Mapping[str, Path]) -> Iterator[str]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in files)
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level else ""
            base = ".".join(part for part in (above, node.module) if part)
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                yield from (known for known in [whole if whole in files else base] if known in files)


def _rows() -> Mapping[str, int]:
    """The row of each package, counted from the bottom, as import-linter has it."""
    settings = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    return {name.strip(" ()"): row for row, layer in enumerate(reversed(layers)) for name in layer.split("|")}


def test_the_table_of_packages_has_the_rows_that_are_enforced() -> None:
    guide = (_ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = guide.partition("| packages | hold |\n|---|---|\n")[2].partition("\n\n")[0]
    written = [re.findall(r"`(\w+)`", line.split("|")[1]) for line in table.splitlines()]
    rows = _rows()
    enforced = [{name for name in rows if rows[name] == row} for row in sorted(set(rows.values()), reverse=True)]
    assert list(map(set, written)) == enforced


def test_every_package_stands_on_a_row_and_no_arrow_points_up() -> None:
    rows = _rows()
    packages = {name: name.split(".")[1] for name in _graph() if name.count(".")}
    assert set(packages.values()) <= rows.keys() | {"__main__"}
    upward = {
        f"{name} -> {other}"
        for name, others in _graph().items()
        for other in others
        if packages.get(name) in rows and packages.get(other) in rows
        if rows[packages[other]] >= rows[packages[name]] and packages[name] != packages[other]
        if other != _FRAMES
    }
    assert not upward


def test_what_runs_in_a_sandbox_imports_of_rlf_its_own_folder_alone() -> None:
    """A sandbox shows its processes nothing else of rlf: so the form of frames stands there, and is no upper row's."""
    for path in (_ROOT / "rlf/sandbox/guest").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert not any(alias.name.startswith("rlf") for alias in node.names), path
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 1 or (node.level == 0 and not (node.module or "").startswith("rlf")), path


def _uses(source: str) -> Iterator[str]:
    """The whole names of what a file uses, by whatever names it has imported them; but for those of types."""
    nodes = [*ast.walk(ast.parse(source))]
    types = {id(node.value) for node in nodes if isinstance(node, ast.Subscript)}  # subprocess.Popen[bytes]
    homes = dict[str, str]()
    for node in nodes:
        if isinstance(node, ast.Import):
            homes |= {alias.asname or alias.name.split(".")[0]: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom):
            homes |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            homes.setdefault(node.targets[0].id, _name(node.value, homes))
    yield from homes.values()
    yield from (_name(node, homes) for node in nodes if id(node) not in types)


def _name(node: ast.AST, homes: Mapping[str, str]) -> str:
    match node:
        case ast.Name():
            return homes.get(node.id) or node.id
        case ast.Attribute():
            return f"{_name(node.value, homes)}.{node.attr}"
        case ast.Call(func=ast.Name("getattr"), args=[value, ast.Constant(str(attribute)), *_]):
            return f"{_name(value, homes)}.{attribute}"
        case ast.Call(func=ast.Name("__import__" | "import_module") | ast.Attribute(attr="import_module")):
            return str(getattr(node.args[0], "value", ""))
    return ""


def test_processes_are_started_by_the_package_that_watches_and_ends_them() -> None:
    files = {path.relative_to(_ROOT).as_posix(): path.read_text() for path in (_ROOT / "rlf").rglob("*.py")}
    found = {name for name, source in files.items() if any(map(_START.fullmatch, _uses(source)))}
    assert {name for name in found if not name.startswith("rlf/processes/")} == _STARTERS.keys()


@pytest.mark.parametrize(
    "source",
    [
        "import subprocess; subprocess.run(x)",
        "import subprocess as s; s.Popen(x)",
        "from subprocess import run as go",
        "import subprocess; s = subprocess; s.check_output(x)",
        "import importlib; importlib.import_module('subprocess').call(x)",
        "getattr(__import__('os'), 'fork')()",
        "import asyncio as a; a.create_subprocess_exec(x)",
        "from asyncio import subprocess as s; s.create_subprocess_shell(x)",
        "loop().subprocess_exec(x)",
        "import multiprocessing as m; m.get_context('fork').Process()",
        "from concurrent import futures as f; f.ProcessPoolExecutor()",
    ],
)
def test_whoever_starts_a_process_is_seen_by_whatever_name(source: str) -> None:
    assert any(map(_START.fullmatch, _uses(source)))
    assert not any(map(_START.fullmatch, _uses("import subprocess as s; a: s.Popen[bytes]; raise s.TimeoutExpired")))


def test_folders_for_temporary_files_are_made_where_those_of_killed_processes_are_found() -> None:
    made = re.compile(r"\b(TemporaryDirectory|mkdtemp)\(")
    found = {str(file.relative_to(_ROOT)): made.search(file.read_text()) for file in (_ROOT / "rlf").rglob("*.py")}
    assert {name for name, match in found.items() if match} == set(_FOLDERS)


def test_the_areas_of_mutation_name_files_and_tests_that_are_there() -> None:
    body = ast.parse((_ROOT / "benchmarks/mutation.py").read_text()).body
    areas = next(each for each in body if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "AREAS")
    for files, tests in eval(ast.unparse(areas.value)).values():  # without mutmut, which it imports
        assert [name for name in files if not list((_ROOT / "rlf").glob(name))] == []
        assert [name for name in tests if not (_ROOT / "tests" / name).exists()] == []


def test_no_files_import_each_other_in_a_circle() -> None:
    graph = {name: {other for other in others if (name, other) not in _PAIRS} for name, others in _graph().items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as fault:
        pytest.fail(" <- ".join(fault.args[1]))


def test_hardly_a_public_name_stands_in_two_files() -> None:
    found = Counter[str]()
    for path in (_ROOT / "rlf").rglob("*.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        found.update(
            {one.name for one in body if isinstance(one, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)}
        )
    twice = sorted(name for name, num in found.items() if num > 1 and not name.startswith("_"))
    assert len(twice) <= 15, twice
