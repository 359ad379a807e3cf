"""Every kind of world keeps its promises: life, isolation, deadline, cancellation, typed failures, close, determinism.

A kind is tried by a file of its name in `conformance/`, which says how a world of it is made to hang, to break, and so
on: real servers and processes, no stand-ins.
"""

import asyncio
import time
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path

import pytest

from rlf.environments import ENV_KINDS, EnvSpec, WorldPool
from rlf.tools.results import ToolFailure
from rlf.types import Outcome, Phase, WorldFailure

_FOLDER = Path(__file__).with_name("conformance")
_KINDS = sorted(file.stem for file in _FOLDER.glob("[!_]*.py"))
_SUBJECTS = {
    f"{kind}-{name}": make
    for kind in _KINDS
    for name, make in import_module(f"tests.environments.conformance.{kind}").SUBJECTS.items()
}
_HASTY_S = 0.5
_LATE_S = 3.0
"""By how much a loaded machine may be late."""


def test_every_kind_is_tried():
    assert sorted(ENV_KINDS.names()) == _KINDS


@pytest.fixture(scope="module", params=_SUBJECTS)
def subject(request):
    with _SUBJECTS[request.param]() as made:
        yield made


class Bench:
    """Worlds of a subject, and how often each was closed."""

    def __init__(self, subject, worlds):
        self.subject, self.worlds, self.closed = subject, worlds, []
        make = worlds._make

        async def counted():
            world = await make()
            place, close = len(self.closed), world.close
            self.closed.append(0)

            async def close_counted():
                self.closed[place] += 1
                await close()

            world.close = close_counted
            return world

        worlds._make = counted

    def open(self, name):
        return self.worlds.open(name, self.subject.task)

    async def play(self, name, actions):
        """The scores of an episode, which is closed."""
        episode = self.open(name)
        try:
            await episode.reset()
            await self.act(episode, actions)
            await episode.score()
            return episode.record
        finally:
            await episode.close()

    async def act(self, episode, actions):
        for action in actions:
            if isinstance(action, str):
                await episode.reply(action)
            else:
                await episode.call(action)


@asynccontextmanager
async def opened(subject, **limits):
    env = EnvSpec.model_validate(subject.env | {"limits": {"reset_s": 60, **limits}})
    async with WorldPool(env, seed=7) as worlds:
        bench = Bench(subject, worlds)
        yield bench
        assert bench.closed == [1] * len(bench.closed), "each world is closed once"
        assert not worlds._episodes and worlds._permits._value == env.limits.max_concurrency


def test_two_at_once_have_a_state_and_scores_of_their_own(subject):
    assert EnvSpec.model_validate(subject.env).complaints() == []

    async def go():
        async with opened(subject) as bench:
            solved, idle = await asyncio.gather(bench.play("a", subject.solve), bench.play("b", []))
            again = await bench.play("c", subject.solve)
        assert solved.scores[subject.score] == again.scores[subject.score] == 1.0 > idle.scores.get(subject.score, 0.0)
        assert solved.failed is idle.failed is None
        same = ("observation", "scores", "first_state")
        assert [getattr(solved, name) for name in same] == [getattr(again, name) for name in same]

    asyncio.run(go())


def test_one_that_hangs_fails_at_its_deadline_and_holds_up_no_other(subject):
    async def go():
        async with opened(subject, step_s=_HASTY_S, score_s=_HASTY_S) as bench:
            hung, other = bench.open("a"), bench.open("b")
            await asyncio.gather(hung.reset(), other.reset())
            started = time.perf_counter()
            with pytest.raises((ToolFailure, WorldFailure)) as failed:
                await bench.act(hung, subject.hang)
                await hung.score()
            if not subject.shares_fate:
                await bench.act(other, subject.solve)
                await other.score()
                assert other.record.scores[subject.score] == 1.0
            assert time.perf_counter() - started < _HASTY_S + _LATE_S
            await asyncio.gather(hung.close(), other.close())
        assert getattr(failed.value, "outcome", Outcome.INFRA) is Outcome.INFRA, failed.value
        assert any(words in str(failed.value) for words in ("not finished within", "interrupted")), failed.value

    asyncio.run(go())


def test_one_that_is_cancelled_is_closed_and_the_next_one_plays(subject):
    async def go():
        async with opened(subject) as bench:
            playing = asyncio.create_task(bench.play("a", subject.hang))
            await asyncio.sleep(_HASTY_S)
            playing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await playing
            if not subject.shares_fate:
                assert (await bench.play("b", subject.solve)).scores[subject.score] == 1.0

    asyncio.run(go())


def test_one_that_breaks_is_a_failure_of_infrastructure_and_never_a_score(subject):
    async def go():
        async with opened(subject) as bench:
            episode = bench.open("a")
            await episode.reset()
            with pytest.raises((ToolFailure, WorldFailure)) as failed:
                await bench.act(episode, subject.breaks)
                await episode.score()
            assert getattr(failed.value, "outcome", Outcome.INFRA) is Outcome.INFRA
            assert subject.says in str(failed.value)
            assert episode.record.failed in (Phase.STEP, Phase.REPLY, Phase.SCORE) and not episode.record.scores
            with pytest.raises(WorldFailure):
                await episode.score()
            await episode.close()
            assert (await bench.play("b", subject.solve)).scores[subject.score] == 1.0

    asyncio.run(go())


def test_one_that_was_never_reset_closes(subject):
    async def go():
        async with opened(subject) as bench:
            await bench.open("a").close()
            resetting = asyncio.create_task(bench.play("b", []))
            await asyncio.sleep(0)
            resetting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await resetting

    asyncio.run(go())
