"""`kind: judge`: one or several models behind OpenAI-compatible endpoints say how good a trajectory is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import fields
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from rlf.apps.judges.prompts import DEFAULT_PROMPTS, ELEMENT, SHAPES, FencedTemplate, paths_of, unknown_part
from rlf.apps.judges.settings import (
    Against,
    Cache,
    Combine,
    Compare,
    Criterion,
    Judging,
    OnDrift,
    Read,
    Sentinels,
    Serve,
    is_about_groups,
)
from rlf.core import RlfError, nearest
from rlf.core.kinds import wrong_value
from rlf.endpoints.spec import EndpointSpec, SamplingSpec
from rlf.endpoints.template import TemplateFault
from rlf.rewards.term import Range, RewardContext, Scorer, Term, Unscorable

MAX_EXPECTED = 100
"""Highest score that `read: expected` takes: each must be one token of the judge's."""


class JudgeTerm(Term):
    """The verdict of other models on the trajectory, mapped to 0 to 1.

    A judge reads a prompt over the trajectory, whose values are fenced: they are data to it, whatever they say. A
    trajectory without an answer is worth 0 and no judge is asked. A judge that cannot be reached, or whose reply is
    not exactly one verdict within the range, leaves the trajectory unscorable. Endpoints with different `model` are a
    panel: each judge casts `votes` votes, and the term's value is their median or mean.
    """

    best_is_known: ClassVar[bool] = False
    reads_all_rows: ClassVar[bool] = True
    CONDITIONS: ClassVar[str] = "rlf.apps.judges.conditions"

    kind: Literal["judge"] = "judge"
    endpoints: tuple[EndpointSpec, ...] = ()
    """Servers of the judges; of those with the same `model` the least busy one is asked."""
    serve: Serve | None = None
    """The judge that rlf starts while the term is open, where there are no `endpoints`."""
    compare: Compare = Compare.POINTWISE
    against: Against = Against.GOLD
    """With `compare: pairwise`."""
    range: Range = (1.0, 10.0)
    """Lowest and highest score of `compare: pointwise`; a score outside is no verdict."""
    criteria: tuple[Criterion, ...] = ()
    """What is looked at. Pointwise, each has a score of its own; none: there is one score."""
    read: Read = Read.JSON
    constrained: bool = True
    """Whether the server is asked to hold the reply to a JSON schema (`response_format`), with `read: json`."""
    coverage: float = Field(default=0.5, gt=0, le=1)
    """With `read: expected`: least probability that must lie on tokens that are verdicts."""
    prompt: str | None = None
    """Jinja2 text: what the judge is asked. Pointwise over question, answer, transcript, calls, gold, golds, columns,
    criteria, low, high; else over question, gold, golds, columns, criteria and first, second or candidates, each with
    answer, transcript, calls. null: question, reference where there is one, criteria and answer."""
    system: str | None = None
    """The judge's system prompt, verbatim; the meaning of fences follows it."""
    images: bool = False
    """Whether the task's images and those in tools' results are sent too, for a judge that is a VLM; pointwise only."""
    sampling: SamplingSpec = SamplingSpec(temperature=0.0)
    """How judges sample; without a `temperature` the likeliest token, with null as the server does."""
    combine: Combine = Combine.MEDIAN
    votes: int = Field(default=1, ge=1, le=99)
    """Verdicts of each judge. More than half must be readable."""
    timeout_s: float = Field(default=120.0, gt=0)
    """Time of one reply, waiting and further attempts included."""
    group_timeout_s: float = Field(default=600.0, gt=0)
    """Time that the rollouts of a group wait for one another; after it those are compared that are there."""
    cache: Cache | None = Cache()
    """null: a judge is asked each time."""
    sentinels: Sentinels | None = None
    """Items with known verdicts that watch the judge."""

    @field_validator("sampling", mode="before")
    @classmethod
    def _likeliest_unless_said(cls, sampling: Any) -> Any:
        return {"temperature": 0.0, **sampling} if isinstance(sampling, Mapping) else sampling

    @field_validator("criteria")
    @classmethod
    def _criteria_differ(cls, criteria: tuple[Criterion, ...]) -> tuple[Criterion, ...]:
        names = [criterion.name for criterion in criteria]
        if "reason" in names:
            raise wrong_value("got the name 'reason', under which a reply gives its reason. Rename it.")
        repeated = [name for name in names if names.count(name) > 1]
        if repeated:
            raise wrong_value(f"{repeated[0]!r} names two criteria. Rename or remove one of them.")
        return criteria

    @field_validator("read")
    @classmethod
    def _expected_has_tokens(cls, read: Read, info: ValidationInfo) -> Read:
        compare, bounds = info.data.get("compare"), info.data.get("range")
        if read is not Read.EXPECTED or compare is None or bounds is None:
            return read
        if compare is Compare.GROUP:
            raise wrong_value("got expected, but the ranking of a group is not one token. Write json or tag.")
        low, high = bounds
        if compare is Compare.POINTWISE and not (low == int(low) and high == int(high) and 0 <= low < MAX_EXPECTED):
            raise wrong_value(_no_tokens(low, high))
        if compare is Compare.POINTWISE and high > MAX_EXPECTED:
            raise wrong_value(_no_tokens(low, high))
        return read

    @field_validator("prompt")
    @classmethod
    def _prompt_is_a_template(cls, prompt: str | None, info: ValidationInfo) -> str | None:
        compare = info.data.get("compare")
        if prompt is None or compare is None:
            return prompt
        shape = SHAPES[compare]
        try:
            names = FencedTemplate(prompt).names
        except TemplateFault as fault:
            raise wrong_value(f"{fault}. Correct it there.") from fault
        looked_up = {path for path in paths_of(prompt) if path[0] in shape}
        for path in sorted({(name,) for name in names} | looked_up):
            if unknown := unknown_part(path, shape):
                (*place, name), known = unknown
                message = f"the template names {'.'.join((*place, name))!r}{nearest(name, known)}"
                if not known:
                    raise wrong_value(f"{message}, but {'.'.join(place)!r} is a list. Write e.g. a `for` over it.")
                raise wrong_value(f"{message} (known: {', '.join(known)}). Use one of these.")
        return prompt

    @field_validator("images")
    @classmethod
    def _images_are_of_one(cls, images: bool, info: ValidationInfo) -> bool:
        if images and info.data.get("compare") not in (None, Compare.POINTWISE):
            raise wrong_value(
                "got true, but a judge of several answers cannot know which image belongs to which answer. Compare "
                "pointwise."
            )
        return images

    @field_validator("votes")
    @classmethod
    def _votes_say_more_than_one(cls, votes: int, info: ValidationInfo) -> int:
        data = info.data
        if votes == 1 or not {"read", "sampling", "combine", "endpoints", "compare"} <= data.keys():
            return votes
        if data["read"] is Read.EXPECTED:
            raise wrong_value(f"got {votes}; expected values of one prompt are all the same. Remove it.")
        if data["sampling"].temperature == 0 and data["compare"] is not Compare.GROUP:
            words = f"got {votes} at temperature 0, where they are all the same. "
            raise wrong_value(f"{words}Write e.g. `sampling: {{temperature: 0.7}}`, or remove this.")
        return votes

    @field_validator("sentinels")
    @classmethod
    def _check_sentinels(cls, sentinels: Sentinels | None, info: ValidationInfo) -> Sentinels | None:
        if sentinels is None or not {"compare", "against", "unscorable"} <= info.data.keys():
            return sentinels
        if is_about_groups(info.data["compare"], info.data["against"]):
            raise wrong_value("a sentinel has no group to be compared with. Compare pointwise or with the gold.")
        if sentinels.tolerated >= sentinels.drifted:
            words = f"got tolerated: {sentinels.tolerated:g}, which is not below drifted: {sentinels.drifted:g}"
            raise wrong_value(f"{words}, so that they cannot be distinguished. Write a lower one.")
        if sentinels.on_drift is OnDrift.FREEZE and info.data["unscorable"] is not Unscorable.DROP_TERM:
            words = "got on_drift: freeze with unscorable: drop_trajectory, so every trajectory would be dropped. "
            raise wrong_value(f"{words}Write `unscorable: drop_term` beside `sentinels`.")
        return sentinels

    @model_validator(mode="after")
    def _somebody_judges(self) -> Self:
        if not self.endpoints and self.serve is None:
            example = "`endpoints: [{url: http://localhost:8000/v1, model: NAME}]` or `serve: {model: NAME}`"
            raise wrong_value(f"no judge is named; expected endpoints or serve. Write e.g. {example}.")
        if self.combine is Combine.MEDIAN and self.num_votes > 1 and self.num_votes % 2 == 0:
            words = f"{self.num_votes} votes, {self.votes} of each judge, have no median. "
            raise wrong_value(f"{words}Write an odd number of votes, or combine: mean.")
        return self

    @property
    def judges(self) -> Mapping[str, Sequence[EndpointSpec]]:
        """The endpoints of each model, by the model's name; of a served one none yet."""
        if not self.endpoints:
            return {} if self.serve is None else {self.serve.model: ()}
        models = dict.fromkeys(endpoint.model for endpoint in self.endpoints)
        return {model: [each for each in self.endpoints if each.model == model] for model in models}

    @property
    def num_votes(self) -> int:
        """Of all judges together."""
        return self.votes * len(self.judges)

    @property
    def compares_groups(self) -> bool:
        return is_about_groups(self.compare, self.against)

    @property
    def compares_with_gold(self) -> bool:
        """Whether a task without a gold answer cannot be judged."""
        return self.compare is Compare.PAIRWISE and self.against is Against.GOLD

    @property
    def template(self) -> str:
        """The declared prompt, or the default one."""
        return self.prompt or DEFAULT_PROMPTS[self.compare]

    @property
    def judging(self) -> Judging:
        """The term's keys for what asks judges and reads their replies."""
        return Judging(**{field.name: getattr(self, field.name) for field in fields(Judging)})

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """Columns that the prompt reads, with the key that names each."""
        paths = [path for path in paths_of(self.template) if path[0] == "columns" and len(path) > 1]
        return {path[1]: ("prompt",) for path in sorted(paths) if path[1] != ELEMENT}

    @property
    def data_files(self) -> Sequence[str]:
        """The sentinels."""
        return () if self.sentinels is None else (self.sentinels.file,)

    def prepare(self) -> None:
        """Reads the sentinels. Raises RlfError where the file is missing or wrong."""
        if self.sentinels is not None:
            from rlf.apps.judges.drift import read_labels

            if not read_labels(self.sentinels.file, self.judging):
                raise RlfError(f"{self.sentinels.file}: holds no sentinel. Write one JSON object a line.")

    @asynccontextmanager
    async def open(self, context: RewardContext) -> AsyncIterator[Scorer]:
        """The judges: connected, or started first. Raises RlfError where none can be used."""
        from rlf.apps.judges.drift import Watchman, read_labels
        from rlf.apps.judges.panel import Panel, served
        from rlf.apps.judges.scorer import JudgeScorer
        from rlf.tools.agent_text import special_tokens

        async with AsyncExitStack() as stack:
            judges = self.judges
            if self.serve is not None and not self.endpoints:
                judges = await stack.enter_async_context(served(self.serve))
            panel = Panel(self.judging, judges, context)
            await panel.open()
            stack.push_async_callback(panel.close)
            watchman = None
            if self.sentinels is not None:
                items = read_labels(self.sentinels.file, self.judging)
                watchman = Watchman(self.name, self.sentinels, items, context.seed, context.notify)
            tokens = special_tokens(*judges)
            yield JudgeScorer(self.judging, panel, watchman, context.seed, tokens)


def _no_tokens(low: float, high: float) -> str:
    words = f"got expected with range: [{low:g}, {high:g}]; its scores must be tokens, whole numbers from 0 to "
    return f"{words}{MAX_EXPECTED}. Write e.g. `range: [0, 9]`."
