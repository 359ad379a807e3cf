"""What trajectories begin with as texts, and the filter of those that are looked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from rlf.chat.encoding import load_tokenizer
from rlf.core.errors import RlfError
from rlf.core.redact import Redactor
from rlf.core.registry import nearest
from rlf.lineage.records import Run, TrajectoryFilter
from rlf.reports.trajectory import opening
from rlf.spec.model_files import folder_on_disk
from rlf.spec.reader import mentioned, read_env_files
from rlf.types import FailureClass
from rlf.types.trajectory import Trajectory

# The openings of a run's prompts, before each question, by the tokenizer of the run's model.


class Openings:
    """Reads the openings of one run's trajectories; the tokenizer is loaded for the first."""

    def __init__(self, run: Run) -> None:
        self._spec = run.record.plan.get("spec", {})
        filled_in = run.record.plan.get("interpolated", ())
        folders = {(Path(run.record.cwd or "") / file.path).parent for file in run.record.files if file.role == "spec"}
        environment = os.environ | read_env_files(folders)
        self.redactor = Redactor(environment, mentioned(item["text"] for item in filled_in))

    def __call__(self, trajectory: Trajectory) -> str:
        """The opening, or what the plan says of it where the tokenizer is not on this machine."""
        if not trajectory.tokens:
            return self._planned_text("its tokens are not kept")
        decode = self.decoder
        if decode is None:
            return self._planned_text("the model's tokenizer is not on this machine")
        return opening(trajectory, decode)

    @cached_property
    def decoder(self) -> Callable[[Sequence[int]], str] | None:
        """Tokens as text without secrets, which ids hold and texts do not; None without a tokenizer."""
        decode = self.plain_decoder
        return None if decode is None else lambda tokens: self.redactor.text(decode(tokens))

    @cached_property
    def plain_decoder(self) -> Callable[[Sequence[int]], str] | None:
        """Tokens as text with the secrets that are in it."""
        path = self._spec.get("model", {}).get("path")
        folder = None if path is None else folder_on_disk(path)
        if folder is None:
            return None
        if (folder / "tokenizer.json").is_file():
            from tokenizers import Tokenizer  # type: ignore[import-untyped]  # ships no stubs

            fast = Tokenizer.from_file(str(folder / "tokenizer.json"))
            return lambda tokens: str(fast.decode(list(tokens), skip_special_tokens=False))
        try:
            tokenizer = load_tokenizer(str(folder))
        except RlfError:
            return None
        return lambda tokens: str(tokenizer.decode(list(tokens)))

    def _planned_text(self, why: str) -> str:
        """The system texts and tools that the plan names."""
        data = self._spec.get("data", {})
        texts = {part["system"] for part in data.values() if isinstance(part, dict) and part.get("system")}
        tools = [tool["name"] for tool in self._spec.get("tools", ()) if not tool.get("hidden")]
        lines = [*sorted(texts), *([f"tools: {', '.join(tools)}"] if tools else [])]
        return "\n".join([*lines, f"(as the plan says: {why})"]) if lines else ""


def wanted_trajectories(failure: str | None = None, **facts: Any) -> TrajectoryFilter:
    """Makes the lineage's filter. Raises RlfError for an unknown class of parse failure."""
    known = [str(kind) for kind in FailureClass]
    if failure is not None and failure not in known:
        raise RlfError(f"--failure: unknown class {failure!r}{nearest(failure, known)} (known: {', '.join(known)}).")
    return TrajectoryFilter(failure=None if failure is None else FailureClass(failure), **facts)
