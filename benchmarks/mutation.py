"""How many small faults the tests of the heart notice: mutmut's mutants, a sample, each against the tests that run it.

Run: `make mutation`, or `python benchmarks/mutation.py [--each 60] [--seed 0] [AREA ...]` where mutmut is installed.
The tests are collected and run once, with coverage by test. For each mutant a fork of that process puts the mutated
functions in place and runs the tests that reach the changed lines, quickest first, until one fails; functions that keep
results forget them before. Mutants of strings, since most of them are words for a reader, and of what runs as a module
is imported are left out. Prints each survivor and the killed share by area.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import gc
import itertools
import os
import random
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import _lru_cache_wrapper
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
import torch
from coverage import Coverage
from libcst import Module
from mutmut.mutation.file_mutation import Mutation, create_mutations

from rlf.core import identity

ROOT = Path(__file__).parents[1]
AREAS = {
    "algo": (["algo/**/*.py"], ["algo"]),
    "training": (
        [f"training/{name}.py" for name in ("batch", "collection", "counting", "draw")],
        [
            "training",
            *(f"engines/local/test_{name}.py" for name in ("update", "stretches")),
            "apps/demos/test_teaching.py",
        ],
    ),
    "chat": (
        [f"chat/{name}.py" for name in ("scan", "calls", "marks")],
        [
            "rewards/test_judge_special_tokens.py",
            *(f"chat/test_{name}.py" for name in ("hermes_parse", "quotes", "code_fence", "marks", "foreign")),
            *(f"chat/test_{name}.py" for name in ("deepseek", "pythonic", "search_r1")),
        ],
    ),
    "rollout": (
        ["rollout/loop.py", "rollout/rollout.py"],
        ["rollout", "chat/test_through_the_loop.py", "chat/test_vision.py", "environments/test_worlds.py"],
    ),
    "rewards": (
        ["rewards/term.py", "rewards/function.py"],
        [f"rewards/test_{name}.py" for name in ("composition", "function", "judge")] + ["spec/test_golden_faults.py"],
    ),
    "executor": (
        ["tools/execution/executor.py"],
        [
            f"tools/test_{name}.py"
            for name in ("executor", "breaker", "cache", "disk_cache", "tape", "output", "gate", "agent_kind")
        ],
    ),
    "compile": (
        [f"plan/{name}.py" for name in ("compiler", "checks")]
        + [f"spec/{name}.py" for name in ("layers", "overrides", "validate")],
        [f"plan/test_{name}.py" for name in ("plan", "values", "chat_checks")]
        + [f"spec/test_{name}.py" for name in ("golden_faults", "layers", "overrides", "checks")]
        + ["cli/test_mistakes.py"],
    ),
    "lineage": (
        [f"lineage/{name}.py" for name in ("recorder", "upkeep", "rows", "store")],
        ["lineage"],
    ),
    "update": (
        ["engines/local/update.py"],
        [f"engines/local/test_{name}.py" for name in ("update", "stretches", "checkpoint")]
        + ["apps/demos/test_teaching.py", "runs/test_demonstrations.py"],
    ),
}
"""Files of rlf and of tests."""
LONG = (
    "tests/tools/test_agent_kind.py::test_a_real_model_searches_a_real_encyclopedia",
    *(f"tests/lineage/test_{name}.py" for name in ("processes", "killed", "postgres")),
)
"""Minutes of processes, and of a server's threads under coverage, for lines that other tests reach."""
MAX_SECONDS = 20.0
"""Processor time of tests for one mutant, as they take without it; the slowest beyond are left out."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A file's text with one fault."""

    area: str
    path: Path
    source: str
    lines: range
    """Of the statement that is changed, without the body of a compound one."""

    def changed(self) -> Iterator[str]:
        """The lines before and after, with their number."""
        before, after = self.path.read_text().splitlines(), self.source.splitlines()
        yield f"{self.path.relative_to(ROOT)}:{self.lines.start}"
        yield from [
            line for line in difflib.unified_diff(before, after, n=0, lineterm="") if line[:2] not in ("--", "++", "@@")
        ]


def sample_mutants(area: str, count: int, seed: int) -> list[Mutant]:
    """Mutants of an area that change what a function does, drawn from all of them."""
    found = {pattern: list((ROOT / "rlf").glob(pattern)) for pattern in AREAS[area][0]}
    if gone := [pattern for pattern, paths in found.items() if not paths]:
        raise SystemExit(f"the area {area} names files that are not there: {', '.join(gone)}")
    paths = sorted(itertools.chain(*found.values()))
    parsed = {path: create_mutations(str(path), path.read_text())[:2] for path in paths}
    drawn = [(path, mutation) for path, (_, mutations) in parsed.items() for mutation in mutations]
    random.Random(seed).shuffle(drawn)
    made = (make_mutant(area, path, parsed[path][0], mutation) for path, mutation in drawn)
    return list(itertools.islice(filter(None, made), count))


def make_mutant(area: str, path: Path, module: Module, mutation: Mutation) -> Mutant | None:
    if "String" in type(mutation.original_node).__name__:
        return None
    source, mutated = path.read_text(), str(module.deep_replace(mutation.original_node, mutation.mutated_node).code)
    if placeless_codes(path, mutated) == placeless_codes(path, source):
        return None
    return Mutant(area, path, mutated, statement_lines(source, first_difference(source, mutated)))


def function_codes(path: Path, source: str) -> dict[tuple[str, int], CodeType]:
    """The code of every function of a file, by its qualified name and how many of that name came before."""
    codes: dict[tuple[str, int], CodeType] = {}
    seen: Counter[str] = Counter()

    def visit(code: CodeType) -> None:
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                if inner.co_flags & 0x2:  # a function, not a class body
                    codes[inner.co_qualname, seen[inner.co_qualname]] = inner
                    seen[inner.co_qualname] += 1
                visit(inner)

    visit(compile(source, str(path), "exec", dont_inherit=True))
    return codes


def placeless_codes(path: Path, source: str) -> dict[tuple[str, int], CodeType]:
    """The code of every function, equal to that of the same function on other lines."""

    def without_places(code: CodeType) -> CodeType:
        constants = tuple(without_places(each) if isinstance(each, CodeType) else each for each in code.co_consts)
        return code.replace(co_consts=constants, co_firstlineno=1, co_linetable=b"")

    return {name: without_places(code) for name, code in function_codes(path, source).items()}


def first_difference(before: str, after: str) -> int:
    pairs = itertools.zip_longest(before.splitlines(), after.splitlines())
    return next(number for number, (old, new) in enumerate(pairs, 1) if old != new)


def statement_lines(source: str, line: int) -> range:
    """The lines of the smallest statement that holds a line; up to its body where it has one."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    inmost = max((n for n in nodes if n.lineno <= line <= (n.end_lineno or 0)), key=lambda node: node.lineno)
    body = getattr(inmost, "body", None)
    return range(inmost.lineno, max(body[0].lineno, inmost.lineno + 1) if body else (inmost.end_lineno or 0) + 1)


def put_in_place(mutant: Mutant) -> None:
    """Gives every function made from the mutant's file its mutated code."""
    path = mutant.path
    old, new = function_codes(path, path.read_text()), function_codes(path, mutant.source)
    key_by_place = {(code.co_qualname, code.co_firstlineno): key for key, code in old.items()}
    gc.unfreeze()
    for function in [item for item in gc.get_objects() if type(item) is FunctionType]:
        code = function.__code__
        if code.co_filename == str(path):
            found = new.get(key_by_place[code.co_qualname, code.co_firstlineno])
            if found is not None and found.co_freevars == code.co_freevars:
                function.__code__ = found


def find_caches() -> list[_lru_cache_wrapper[Any]]:
    """The functions of rlf that keep results. What is kept runs no line, neither for coverage nor with a mutant.

    Those of `rlf.core` stay: they call no other package, and list rlf's files and the installed packages.
    """
    gc.unfreeze()
    kept = [item for item in gc.get_objects() if type(item) is _lru_cache_wrapper]
    return [cached for cached in kept if (cached.__module__ or "").startswith("rlf.") and not is_core(cached)]


def is_core(cached: _lru_cache_wrapper[Any]) -> bool:
    return cached.__module__.startswith("rlf.core.")


def forget_notes() -> None:
    """Keeps no result on disk, where one of a mutant would stay."""

    def no_folder(key: Any) -> Path:
        raise OSError("a mutant may run")

    identity._note_path = no_folder


class MutationRun:
    """A pytest plugin that runs the collected tests against mutants."""

    def __init__(self, mutants: Sequence[Mutant]) -> None:
        self.mutants = mutants
        self.survivors: list[Mutant] = []
        self._failed = False
        self._seconds: dict[str, float] = {}
        self._tests: dict[tuple[str, int], set[str]] = defaultdict(set)

    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings  # not before pytest begins, which rewrites its assertions

        settings.register_profile("mutation", deadline=None, derandomize=True, database=None, phases=tuple(Phase)[:3])
        settings.load_profile("mutation")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._run_once(session.items)
        self._check_fork(session.items)
        for mutant in self.mutants:
            items = self._covering(mutant, session.items)
            if not items or not self._fails(items, mutant):
                self.survivors.append(mutant)
                print("\n".join(mutant.changed()), f"({len(items)} tests)\n", flush=True)
        return True

    def _run_once(self, items: Sequence[pytest.Item]) -> None:
        paths = {str(mutant.path) for mutant in self.mutants}
        coverage = Coverage(data_file=None, config_file=False, include=sorted(paths))
        coverage.start()
        caches, num_modules = [], 0
        for item in items:
            coverage.switch_context(item.nodeid)
            if len(sys.modules) != num_modules:
                caches, num_modules = find_caches(), len(sys.modules)
            for cached in caches:
                cached.cache_clear()
            self._failed, before = False, time.process_time()
            run_tests([item])
            self._seconds[item.nodeid] = time.process_time() - before
            if self._failed:
                print(f"left out, since it fails without a mutant: {item.nodeid}", file=sys.stderr)
                del self._seconds[item.nodeid]
        coverage.stop()
        for path in paths:
            for line, names in coverage.get_data().contexts_by_lineno(path).items():
                self._tests[path, line] |= set(names)
        print(f"\n{len(items)} tests, {sum(self._seconds.values()):.0f} CPU s", file=sys.stderr)

    def _check_fork(self, items: Sequence[pytest.Item]) -> None:
        """What fails in a fork without a mutant would count as killing every mutant; it is left out."""
        nulls = [Mutant("", path, path.read_text(), range(0)) for path in {mutant.path for mutant in self.mutants}]
        if faults := [null.path for null in nulls if self._fails([], null)]:
            raise SystemExit(f"functions cannot be put in place: {', '.join(map(str, faults))}")
        reached = {item.nodeid for mutant in self.mutants for item in self._covering(mutant, items)}
        for item in self._find_broken([item for item in items if item.nodeid in reached], nulls[0]):
            print(f"\nleft out, since it fails in a fork: {item.nodeid}", file=sys.stderr)
            del self._seconds[item.nodeid]

    def _find_broken(self, items: Sequence[pytest.Item], null: Mutant) -> list[pytest.Item]:
        if not self._fails(items, null):
            return []
        half = len(items) // 2
        return [*self._find_broken(items[:half], null), *self._find_broken(items[half:], null)] if half else [*items]

    def _covering(self, mutant: Mutant, items: Sequence[pytest.Item]) -> list[pytest.Item]:
        names = set[str]().union(*(self._tests[str(mutant.path), line] for line in mutant.lines))
        ranked = sorted(
            (i for i in items if i.nodeid in names & self._seconds.keys()), key=lambda item: self._seconds[item.nodeid]
        )
        total, kept = 0.0, []
        for item in ranked:
            total += self._seconds[item.nodeid]
            if total < MAX_SECONDS or not kept:
                kept.append(item)
        return kept

    def _fails(self, items: Sequence[pytest.Item], mutant: Mutant) -> bool:
        """Whether a test fails, or hangs, in a fork."""
        allowed = 20 + 3 * sum(self._seconds[item.nodeid] for item in items)
        pid = os.fork()
        if pid == 0:
            self._play(items, mutant, allowed)
        deadline, pause = time.monotonic() + 4 * allowed, 0.005
        while time.monotonic() < deadline:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return status != 0
            time.sleep(pause)
            pause = min(0.1, pause * 1.5)
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return True

    def _play(self, items: Sequence[pytest.Item], mutant: Mutant, allowed: float) -> None:
        os.setpgid(0, 0)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        limit = int(time.process_time() + allowed) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        failed = True
        with suppress(BaseException):
            put_in_place(mutant)
            for cached in find_caches():
                cached.cache_clear()
            self._failed = False
            for item in items:
                run_tests([item])
                if self._failed:
                    break
            failed = self._failed
        os._exit(failed)


def run_tests(items: Sequence[pytest.Item]) -> None:
    for item in items:
        item.ihook.pytest_runtest_protocol(item=item, nextitem=None)


def spent() -> float:
    """CPU seconds of this process and its children."""
    used = [resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def print_shares(mutants: Sequence[Mutant], survivors: Sequence[Mutant]) -> None:
    made, left = Counter(m.area for m in mutants), Counter(m.area for m in survivors)
    print(f"{'area':<12}{'mutants':>8}{'killed':>8}{'survived':>10}{'share':>8}")
    for area, count in [*made.items(), ("all", made.total())]:
        alive = left[area] if area != "all" else left.total()
        print(f"{area:<12}{count:>8}{count - alive:>8}{alive:>10}{(count - alive) / count:>8.0%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("areas", nargs="*", choices=[[], *AREAS], help="all by default")
    parser.add_argument("--each", type=int, default=60, help="mutants of each area")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))  # also of processes that tests start, which import these
    torch.set_num_threads(1)  # so that forks are safe
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    forget_notes()
    areas = asked.areas or list(AREAS)
    mutants = [mutant for area in areas for mutant in sample_mutants(area, asked.each, asked.seed)]
    run = MutationRun(mutants)
    tests = [f"tests/{name}" for area in areas for name in AREAS[area][1]]
    without = [part for name in ("terminal", "cacheprovider", "xdist") for part in ("-p", f"no:{name}")]
    settings = ["-o", "addopts=--import-mode=importlib", "-o", "faulthandler_timeout=0"]
    settings += [f"--deselect={test}" for test in LONG]
    code = pytest.main([*without, *settings, *tests], plugins=[run])
    if code > pytest.ExitCode.TESTS_FAILED:  # a test that fails without a mutant is left out
        sys.exit(code)
    print_shares(mutants, run.survivors)
    print(f"{spent():.0f} CPU s")


if __name__ == "__main__":
    main()
