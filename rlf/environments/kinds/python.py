"""`env: {kind: python}`: a class of the user's own, in a module or in a file beside the spec."""

from __future__ import annotations

import ast
import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from rlf.core.callables import CallableName, is_async, load_callable, missing_name, source_hash
from rlf.core.definitions import FUNCTIONS, define_function, list_bindings, module_file, read_bindings
from rlf.core.errors import RlfError, describe_type
from rlf.core.identity import hash_json, hash_path
from rlf.core.kinds import wrong_value
from rlf.core.mistakes import blocking_calls
from rlf.environments.instances import (
    GET_REWARD,
    GRADER,
    OwnProcess,
    asynchronous_methods,
    attribute_scores,
    describe_methods,
    draws_shared,
    guard_process,
    import_shared,
    make_class_world,
    missing_columns,
    tool_names,
)
from rlf.environments.kind import EnvSpec
from rlf.environments.processes import ClassProcesses
from rlf.environments.sandboxes import ClassSandbox, complain_of_level, open_sessions
from rlf.environments.world import MakeWorld
from rlf.sandbox import SandboxSpec
from rlf.tools.kind import MAX_ABANDONED
from rlf.tools.python.threads import ThreadPool
from rlf.types import ToolDescription


class WorldIsolation(StrEnum):
    """Where the methods of a class run."""

    AUTO = "auto"
    """`thread`; `process` for a class without `async def` where the engine plays in processes of a job, which a class
    that ends its process would end, and for one that may draw from Python's shared random numbers: `reset` takes no
    `seed`, and its file calls `random`. There they begin at the world's seed."""
    THREAD = "thread"
    """`def` on a thread, `async def` on the loop. A hung thread is left behind, it cannot be killed."""
    INLINE = "inline"
    """On the event loop. For `def` only if it is pure and takes microseconds: while it runs, nothing else does."""
    PROCESS = "process"
    """Each instance in a process of its own, forked from one that has imported the class. A class that hangs, ends its
    process or leaks memory harms no other trajectory: its process is killed at a deadline, and at its close."""
    SANDBOX = "sandbox"
    """Each instance in a sandboxed process of its own, for a file that is not trusted: rlf reads it and never imports
    it. Beside the standard library and `sandbox.packages` it may import `Step`; what goes in and out is JSON."""


class PythonEnv(EnvSpec):
    """A class: each trajectory has an instance of its own, whose public methods are its tools.

    Beside them it may have `reset(task, seed)`, `reply(text)`, `score()`, `gold()`, `state()`, `snapshot()`,
    `restore(snapshot)` and `close()`, each `def` or `async def`. `reset` takes any of `task`, `seed` and the columns of
    the row; the text that it returns stands in the prompt. Classes written for TRL's `environment_factory` work as they
    are: `get_reward()` is the score `reward`.
    """

    kind: Literal["python"] = "python"
    callable: CallableName
    """The class: `package.module:name`, or `path/file.py:name` relative to the file that says so."""
    args: Mapping[str, Any] = {}
    """Arguments of the class, by name."""
    methods: tuple[str, ...] | None = None
    """Names of the methods that are tools; None: all public ones."""
    isolation: WorldIsolation = WorldIsolation.AUTO
    memory_mb: int | None = Field(None, ge=16)
    """Memory that an instance may take beside the imports, in MiB, with `isolation: process`; None: as much as there
    is."""
    sandbox: SandboxSpec | None = None
    """How instances are contained, with `isolation: sandbox`; None: as by default."""

    @model_validator(mode="after")
    def _keys_fit_the_isolation(self) -> Self:
        words = complain_of_level(self.sandbox)
        if self.memory_mb is not None and self.isolation is not WorldIsolation.PROCESS:
            words = "`memory_mb` limits a process; write `isolation: process` too"
        if self.sandbox is not None and self.isolation is not WorldIsolation.SANDBOX:
            words = "`sandbox` needs `isolation: sandbox`; write both"
        if self.isolation is WorldIsolation.SANDBOX and not self.callable.rpartition(":")[0].endswith(".py"):
            words = "a sandbox runs one file; write `path/file.py:name`"
        if words:
            raise wrong_value(words)
        return self

    @property
    def _made_by(self) -> Callable[..., Any]:
        """The class; of one that is sandboxed what its source says of it. Raises RlfError."""
        # Read, not imported: a stub with the signatures is all that complaints, tools and prompts need.
        return _read_class(self.callable) if self.isolation is WorldIsolation.SANDBOX else load_callable(self.callable)

    @property
    def speaks(self) -> bool:
        """Whether the class has `reply`."""
        return hasattr(self._made_by, "reply")

    @property
    def score_names(self) -> tuple[str, ...] | None:
        """Those that the source of `score` writes out; of a class without it, `reward` and the attributes that are."""
        found = _returned_keys(self.callable, "score")
        return found if found is None else tuple(sorted(found)) or attribute_scores(self._made_by)

    def describe_tools(self) -> Sequence[ToolDescription]:
        """From hints and docstrings of the methods."""
        made_by = self._made_by
        return describe_methods(made_by, self.callable, self.methods) if inspect.isclass(made_by) else ()

    def complaints(self) -> list[str]:
        """Imports the class and looks at its methods."""
        made_by = self._made_by
        if not inspect.isclass(made_by):
            return [f"{self.callable} is {describe_type(made_by)}; expected a class"]
        return list(self._find_misfits(made_by))

    def _find_misfits(self, made_by: type[Any]) -> Iterator[str]:
        try:
            inspect.signature(made_by).bind(**self.args)
        except TypeError as fault:
            yield f"{self.callable} cannot be made with the args {', '.join(self.args) or 'none'}: {fault}"
        if not tool_names(made_by) and not hasattr(made_by, "reply"):
            yield f"{self.callable} has neither public methods, which are its tools, nor `reply`"
        if not callable(getattr(made_by, "score", None)) and not attribute_scores(made_by):
            yield f"{self.callable} has neither `score` or `get_reward` nor an attribute `reward`; give it one"
        if callable(getattr(made_by, "score", None)) and hasattr(made_by, GET_REWARD):
            yield f"{self.callable} has both `score` and `get_reward`, TRL's name for it; remove one"
        for name in tool_names(made_by) if self.methods is None else ():
            if GRADER.fullmatch(name):
                words = "would be a tool, by which the policy could ask for its reward"
                yield f"{self.callable}.{name} {words}; rename it `score`, or name the tools in `methods`"
        # The forks' server imports the class by its name, and its own `__main__` is another program.
        if self.isolation is WorldIsolation.PROCESS and self.callable.startswith("__main__:"):
            yield f"{self.callable} is in the main program, which no other process can import; name a module"
        if self.isolation in ("process", "sandbox"):  # a process that blocks holds up itself alone
            return
        for name in (name for name in dir(made_by) if not name.startswith("__")):
            method = getattr(made_by, name)
            if is_async(method) and (blocking := blocking_calls(method)):
                said = f"{self.callable}.{name} is `async def` and calls {', '.join(blocking)}"
                yield f"{said}, which blocks every trajectory; await an asynchronous function, or write `def`"

    def missing_columns(self, columns: Collection[str]) -> list[str]:
        """Finds parameters of `reset` without default."""
        return missing_columns(self._made_by, columns)

    def source_hash(self) -> str:
        """Covers the file that defines the class, not what that file imports or reads."""
        file, _, name = self.callable.rpartition(":")
        # A file that is not trusted is hashed as bytes: to find the class's own source it would have to be imported.
        sandboxed = self.isolation is WorldIsolation.SANDBOX
        hashed = hash_path(Path(file)) if sandboxed else source_hash(load_callable(self.callable))
        return hash_json([name, hashed, dict(self.args)])

    def contained(self) -> Self:
        """A class of `def` methods in processes, unless the spec says where. An `async def` stays on the loop."""
        if self.isolation is not WorldIsolation.AUTO or self.callable.startswith("__main__:"):
            return self
        # Methods that await share clients and connections on the loop, which a fork cannot take along.
        if asynchronous_methods(load_callable(self.callable)):
            return self
        return self.model_copy(update={"isolation": WorldIsolation.PROCESS})

    @asynccontextmanager
    async def open(self) -> AsyncIterator[MakeWorld]:
        """Imports the class; its instances share a pool of threads, the process that theirs are forked from, or a
        sandbox."""
        # In order of what is contained: memory and hangs, code that means harm, nothing, and hangs alone.
        made_by = self._made_by
        isolation = self.contained().isolation if draws_shared(made_by) else self.isolation
        if isolation is WorldIsolation.PROCESS:
            async with ClassProcesses(self.callable, made_by, self.args, memory_mb=self.memory_mb) as processes:
                yield partial(make_class_world, processes)
            return
        if self.isolation is WorldIsolation.SANDBOX:
            async with open_sessions(self.sandbox or SandboxSpec(), self.limits) as sessions:
                yield partial(make_class_world, ClassSandbox(sessions, self.callable, made_by, self.args))
            return
        with guard_process():
            await asyncio.to_thread(import_shared, made_by, self.args)
        if self.isolation is WorldIsolation.INLINE:
            with guard_process():
                yield partial(make_class_world, OwnProcess(made_by, self.args, None, self.tools))
            return
        # Threads that hang are left behind and counted: there are some more than worlds, so that these do not starve.
        with guard_process(), closing(ThreadPool(self.limits.max_concurrency + MAX_ABANDONED)) as threads:
            yield partial(make_class_world, OwnProcess(made_by, self.args, threads, self.tools))


# Classes as their source defines them, read without running any of it.


def _read_class(name: str) -> type[Any]:
    """The class `path/file.py:name` with stubs of its methods, those of bases in the same file included.

    Raises:
        RlfError: the file is not there, is not Python, has no such class, or does not settle what its methods take.
    """
    place, _, attribute = name.rpartition(":")
    classes = _classes_in(Path(place), name)
    if attribute not in classes:
        raise RlfError(missing_name(name, attribute, list(classes)))
    return _class_stub(classes[attribute], classes, name)


def _returned_keys(name: str, method: str) -> frozenset[str] | None:
    """The keys of the mappings that a class's method returns, `score` for a number, none where there is no such method.

    None where the source does not settle them.
    """
    place, _, attribute = name.rpartition(":")
    file = Path(place) if place.endswith(".py") else module_file(place)
    try:
        classes = {} if file is None else _classes_in(file, name)
    except RlfError:
        return None
    wanted = [attribute]
    for each in wanted:
        if each not in classes:
            return None  # of another file, or made at run time
        found = [statement for bound, statement in list_bindings(classes[each].body) if bound == method]
        if found:
            is_one = len(found) == 1 and isinstance(found[0], FUNCTIONS) and not found[0].decorator_list
            return _keys_of(found[0]) if is_one else None
        wanted += [base for base in map(ast.unparse, classes[each].bases) if base not in ("object", *wanted)]
    return frozenset()


def _classes_in(file: Path, name: str) -> dict[str, ast.ClassDef]:
    return {bound: one for bound, one in read_bindings(file, name)[1] if isinstance(one, ast.ClassDef)}


def _keys_of(function: ast.AST) -> frozenset[str] | None:
    found, left = set[str](), list(ast.iter_child_nodes(function))
    while left:
        node = left.pop()
        if isinstance(node, ast.Return):
            match node.value:
                case ast.Dict(keys=keys) if all(isinstance(key, ast.Constant) for key in keys):
                    found |= {str(key.value) for key in keys if isinstance(key, ast.Constant)}
                case (
                    ast.Constant(value=int() | float())
                    | ast.Compare()
                    | ast.Call(func=ast.Name("float" | "int" | "bool"))
                ):
                    found.add("score")
                case _:
                    return None
        elif not isinstance(node, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
            left += ast.iter_child_nodes(node)
    return frozenset(found) if found else None


def _class_stub(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef], name: str) -> type[Any]:
    bases = []
    for base in node.bases:
        found = classes.get(ast.unparse(base))
        if found is None or found is node:
            raise RlfError(f"{name}: its base {ast.unparse(base)!r} is not in the same file. Define it there.")
        bases.append(_class_stub(found, classes, name))
    members: dict[str, Any] = {"__doc__": ast.get_docstring(node)}
    for method in (one for one in node.body if isinstance(one, FUNCTIONS)):
        definition = define_function(method)
        if not definition.complete and not method.name.startswith("_"):
            words = f"{name}.{method.name}: a type or default is not built in, and its file is not imported"
            raise RlfError(f"{words}. Write types such as `int`, `list[str]` or `Literal[...]`.")
        members[method.name] = definition.stub
    return type(node.name, tuple(bases), members)
