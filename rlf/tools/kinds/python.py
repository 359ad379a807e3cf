"""`target: {kind: python}`: a function of the user's own, in a module or in a file beside the spec."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

from rlf.core.callables import CallableName, is_async, load_callable, source_hash
from rlf.core.hashing import hash_json
from rlf.tools.inline import InlineRuntime
from rlf.tools.kind import ToolKind, ToolRuntime
from rlf.tools.limits import Limits
from rlf.tools.signature import signature_complaints
from rlf.tools.threads import ThreadRuntime


class Isolation(StrEnum):
    """Where a function runs."""

    AUTO = "auto"
    """`async def` on the loop, `def` on a thread."""
    INLINE = "inline"
    """On the event loop. For `def` only if it is pure and takes microseconds: while it runs, nothing else does."""
    THREAD = "thread"
    """On a thread of the tool's own pool; `def` only. A hung thread is left behind, it cannot be killed."""


class PythonTool(ToolKind):
    """A function that is called with the arguments as keywords."""

    kind: Literal["python"] = "python"
    callable: CallableName
    """`package.module:name`, or `path/file.py:name` relative to the file that says so."""
    isolation: Isolation = Isolation.AUTO

    def complaints(self, input_schema: Mapping[str, Any]) -> list[str]:
        """Compares the function's signature with the schema."""
        function = load_callable(self.callable)
        if is_async(function) and self.isolation is Isolation.THREAD:
            return [f"{self.callable} is `async def`, which runs on the event loop; write `isolation: auto`"]
        return signature_complaints(function, input_schema)

    def source_hash(self) -> str:
        """Covers the file that defines the function, not what that file imports or reads."""
        return hash_json([self.callable.rpartition(":")[2], source_hash(load_callable(self.callable))])

    async def open(self, limits: Limits) -> ToolRuntime:
        """Imports the function."""
        function = load_callable(self.callable)
        if self.isolation is Isolation.INLINE or is_async(function):
            return InlineRuntime(function)
        return ThreadRuntime(function, limits.max_concurrency)
