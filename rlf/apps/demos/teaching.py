"""What a teacher sees of a trajectory: its prompt with a solution or with what went wrong, and then its own tokens.

The prompt is written by the chat format that wrote the policy's, from the task's messages. Where that does not give the
policy's own prompt token for token (renamed tools, an agent, several contexts), nothing is taught.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from rlf.apps.demos.rows import load_solutions
from rlf.builtin.names import BUILTIN, builtin_path
from rlf.chat.encoding import load_tokenizer
from rlf.core.errors import RlfError
from rlf.rollout.rollout import with_observation
from rlf.spec.model_files import folder_on_disk
from rlf.training.batch import Batch, TeacherRows
from rlf.training.harness import Harness
from rlf.types.score import Scored
from rlf.types.task import Message
from rlf.types.world import shown_tools

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlf.algo.advantages.distillation import Distillation

_PASS = re.compile(r"#[0-9]+$")
"""What ids of tasks of later passes end with."""


class TeacherPrompts:
    """The prompts of a run's teacher."""

    def __init__(self, settings: Distillation, harness: Harness, max_tokens: int) -> None:
        """Reads solutions. Raises SpecError where a row is none.

        Args:
            max_tokens: that a teacher's row may have.
        """
        self._harness, self._max_tokens, self._shows_failures = harness, max_tokens, settings.shows_failures
        self._solutions: dict[str, str] = {}
        """By the id of a task, and by its question."""
        if settings.demonstrations is not None:
            self._solutions = load_solutions(settings.demonstrations)

    def add_rows(self, batch: Batch, used: Sequence[Scored]) -> Batch:
        """The batch of trajectories, with how the teacher reads them."""
        prompts = [self._prompts_of(item) for item in used]
        starts = [item.trajectory.turns[0].start for item in used]
        offsets = [0 if prompt is None else len(prompt) - start for prompt, start in zip(prompts, starts, strict=True)]
        lengths_B = batch.lengths_B + torch.tensor(offsets)
        shape = (len(used), int(lengths_B.max()))
        tokens_BT, mask_BT = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.bool)
        for row, (prompt, start, length) in enumerate(zip(prompts, starts, lengths_B.tolist(), strict=True)):
            own = batch.tokens_BT[row, : int(batch.lengths_B[row])]
            head = own[:start] if prompt is None else torch.tensor(prompt)
            tokens_BT[row, :length] = torch.cat([head, own[start:]])
            mask_BT[row, len(head) : length] = batch.loss_mask_BT[row, start : int(batch.lengths_B[row])]
        read = Batch(tokens_BT, mask_BT, torch.zeros(shape), lengths_B, batch.rewards_B, batch.group_B)
        taught = torch.tensor([prompt is not None for prompt in prompts])
        return replace(batch, teacher_rows=TeacherRows(read, torch.tensor(offsets), taught))

    def _prompts_of(self, item: Scored) -> list[int] | None:
        """The tokens of the teacher's prompt; None where there is nothing to show it."""
        trajectory, task = item.trajectory, item.trajectory.task
        solution = self._solutions.get(_PASS.sub("", task.id)) or self._solutions.get(task.question, "")
        texts = [solution, describe_failures(item) if self._shows_failures else ""]
        shown = "\n\n".join(text for text in texts if text)
        if not shown or trajectory.forks:
            return None
        prompt, start = self._write(item, trajectory.task.messages), trajectory.turns[0].start
        if prompt != list(trajectory.tokens[:start]):
            return None
        longer = self._write(item, with_observation(trajectory.task.messages, shown))
        return longer if len(longer) - start + len(trajectory.tokens) <= self._max_tokens else None

    def _write(self, item: Scored, messages: Sequence[Message]) -> list[int]:
        harness, world = self._harness, item.trajectory.world
        tools = shown_tools(harness.worlds, harness.tools.descriptions, item.trajectory.task)
        return harness.chat.prompt(with_observation(messages, None if world is None else world.observation), tools)


def find_other_tokens(model: str, teacher: str) -> Iterator[str]:
    """Why a teacher cannot read a model's tokens, as far as both are on this machine."""
    folder = None if folder_on_disk(teacher) is None else folder_on_disk(model)
    if folder is not None:
        try:
            find_teacher(teacher, load_tokenizer(str(folder)))
        except RlfError as error:
            yield str(error)


def find_teacher(path: str, tokenizer: PreTrainedTokenizerBase) -> str:
    """The folder or id of a teacher. Raises RlfError for one that writes texts with other tokens than the policy."""
    found = path if not path.startswith(BUILTIN) else str(builtin_path(path.removeprefix(BUILTIN)))
    if load_tokenizer(found).get_vocab() != tokenizer.get_vocab():
        raise RlfError(
            f"{path}: has another vocabulary than the policy, so that it cannot say how likely the policy's tokens "
            "are. Write a model of the same family, or let it play: `rlf demos --teacher`."
        )
    return found


def describe_failures(item: Scored) -> str:
    """What tools, the parser and the reward terms say against a trajectory; empty where they say nothing."""
    trajectory = item.trajectory
    said = [failure.message for failure in trajectory.failures]
    said += [record.result.text for record in trajectory.calls if record.result.outcome != "ok"]
    said += [score.reason for score in item.scores if score.value is not None and score.value <= 0 and score.reason]
    return "An earlier attempt failed:\n" + "\n".join(dict.fromkeys(said)) if said else ""
