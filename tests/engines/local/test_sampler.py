import asyncio
import random
from typing import ClassVar

import pytest
import torch

from rlf.core.errors import RlfError
from rlf.engines.local import cache, decode, host
from rlf.engines.local.attention import AttentionRow, Slots, ragged_layout
from rlf.engines.local.host import PolicyHost
from rlf.engines.local.model import load_model
from rlf.spec.models import Schedule
from rlf.types import Finish, SampleRequest, Sampling

from ...models import save_random_model

STOP = 1
PLAIN = Sampling(stop_token_ids=(STOP,))


def new_sampler(model, *, schedule=Schedule.LOGICAL, num_slots=16, max_tokens=160, decode=None, **keys):
    return PolicyHost(
        model,
        decode or (lambda tokens: "".join(chr(97 + t) for t in tokens)),
        num_slots=num_slots,
        max_tokens=max_tokens,
        schedule=schedule,
        **keys,
    )


async def converse(sampler, name, index, *, turns=3, sampling=PLAIN, max_delay=0.0, clock=random):
    """A trajectory of a few turns with pseudo-random observations; returns tokens, mask, logprobs."""
    own = random.Random(index)
    tokens = [5 + (index // 4 * 7 + k) % 80 for k in range(6)]
    mask, logprobs, num_sampled = [False] * 6, [0.0] * 6, 0
    for turn in range(turns):
        request = SampleRequest(name, list(tokens), own.choice([3, 7, 12]), sampling, index, num_sampled)
        sample = await sampler.sample(request)
        num_sampled += len(sample.tokens)
        tokens += sample.tokens
        mask += [True] * len(sample.tokens)
        logprobs += sample.logprobs
        if turn < turns - 1:
            await asyncio.sleep(clock.random() * max_delay)
            observation = [own.randrange(5, 90) for _ in range(own.randrange(1, 15))]
            tokens += observation
            mask += [False] * len(observation)
            logprobs += [0.0] * len(observation)
    sampler.release(name)
    return tokens, mask, logprobs


def play(sampler, count=12, **keys):
    async def main():
        names = [f"t{i}" for i in range(count)]
        sampler.open(names)
        result = await asyncio.gather(*[converse(sampler, n, i, **keys) for i, n in enumerate(names)])
        await sampler.close()
        return result

    return asyncio.run(asyncio.wait_for(main(), 60))


def recomputed(model, tokens, temperature=1.0):
    """Log-probability of every token under one plain forward pass over the whole trajectory."""
    tokens_1T = torch.tensor([tokens])
    with torch.no_grad():
        logits = model.logits(model.hidden(tokens_1T))[0] / temperature
    return logits[:-1].log_softmax(-1).gather(1, tokens_1T[0, 1:, None])[:, 0].tolist()


@pytest.mark.parametrize("schedule", Schedule)
@pytest.mark.parametrize("num_slots", [3, 16])
@pytest.mark.parametrize("on_gpu", [False, True])
def test_logprobs_over_cached_ragged_turns_equal_one_plain_forward_pass(
    model, monkeypatch, schedule, num_slots, on_gpu
):
    monkeypatch.setattr(cache, "_is_on_gpu", lambda _: on_gpu)
    for tokens, mask, logprobs in play(new_sampler(model, schedule=schedule, num_slots=num_slots)):
        plain = [0.0, *recomputed(model, tokens)]
        for position, sampled in enumerate(mask):
            if sampled:
                assert logprobs[position] == pytest.approx(plain[position], abs=2e-5)


def test_the_logical_schedule_gives_the_same_bits_whatever_the_tools_timing(model):
    first = play(new_sampler(model), max_delay=0.0)
    for seed in range(3):
        again = play(new_sampler(model), max_delay=0.02, clock=random.Random(seed))
        assert again == first


def test_the_logical_schedule_gives_the_same_bits_with_fewer_slots_than_trajectories(model):
    first = play(new_sampler(model, num_slots=5))
    assert play(new_sampler(model, num_slots=5), max_delay=0.02) == first


def test_the_invariant_schedule_gives_the_same_bits_whatever_the_timing_and_the_batch(model):
    keys = {"sampling": Sampling(0.9, top_p=0.95, stop_token_ids=(STOP,)), "count": 24}
    first = play(new_sampler(model, schedule=Schedule.INVARIANT), **keys)
    for num_slots in (1, 7, 24):
        sampler = new_sampler(model, schedule=Schedule.INVARIANT, num_slots=num_slots, max_tokens=None)
        assert play(sampler, max_delay=0.01, clock=random.Random(num_slots), **keys) == first
    few = play(new_sampler(model, schedule=Schedule.INVARIANT), **keys | {"count": 3})
    assert few == first[:3]


def test_the_logical_order_takes_the_place_of_an_invariant_schedule_that_kernels_break(model, monkeypatch):
    tokens = [row[0] for row in play(new_sampler(model, schedule=Schedule.INVARIANT))]
    monkeypatch.setattr(host, "is_invariant", lambda model: False)
    sampler, logical = new_sampler(model, schedule=Schedule.INVARIANT), play(new_sampler(model))
    assert sampler.schedule is Schedule.LOGICAL and play(sampler, max_delay=0.01) == logical
    assert [row[0] for row in logical] == tokens, "both draw the same numbers"
    with pytest.raises(RlfError, match=r"rollout\.schedule: got invariant; on this machine's cpu .*Write clock\."):
        new_sampler(model, schedule=Schedule.INVARIANT, may_wait=False)


@pytest.mark.parametrize("schedule", Schedule)
def test_rows_of_equal_tokens_are_fed_once_and_sample_what_each_does_alone(model, monkeypatch, schedule):
    fed = []

    def counting(cache, decode_lengths, extends, **keys):
        fed.append(len(decode_lengths) + sum(count for _, count in extends))
        return ragged_layout(cache, decode_lengths, extends, **keys)

    monkeypatch.setattr(decode, "ragged_layout", counting)
    keys = {"sampling": Sampling(0.02, stop_token_ids=(STOP,)), "count": 16}
    shared = play(new_sampler(model, schedule=schedule), **keys)
    num_shared = sum(fed)
    alone = play(new_sampler(model, schedule=schedule, num_slots=1), **keys)
    assert num_shared < 0.9 * (sum(fed) - num_shared)
    for (tokens, mask, logprobs), (wanted, _, plain) in zip(shared, alone, strict=True):
        assert tokens == wanted
        assert [p for p, m in zip(logprobs, mask, strict=True) if m] == pytest.approx(
            [p for p, m in zip(plain, mask, strict=True) if m],
            abs=2e-3,  # of numbers that are divided by 0.02
        )


def test_where_a_row_ends_one_other_moves_and_a_long_result_pads_no_short_ones(model):
    class Cache:
        moves: ClassVar = []

        def fit(self, *size):
            pass

        def move(self, *move):
            self.moves.append(move)

    slots, rows = Slots(Cache(), 8), [AttentionRow(str(at), context=[0] * (at + 1)) for at in range(8)]
    slots.away += rows
    slots.lend(rows)
    for row in rows:
        slots.activate(row)
        row.num_cached = len(row.context)
    slots.settle(slots.active)
    slots.deactivate(rows[2])
    slots.settle(slots.active)
    assert Cache.moves == [([7, 2], [2, 7], [8, 3])]
    layout = ragged_layout(model.new_cache(8, 160), [], [(0, 16), (22, 24), (24, 112)])
    assert [tuple(run.mask.shape) for run in layout.runs] == [(2, 1, 24, 46), (1, 1, 112, 136)]


@pytest.mark.parametrize("schedule", Schedule)
def test_long_runs_are_fed_in_pieces_to_the_same_end(model, monkeypatch, schedule):
    whole = play(new_sampler(model, schedule=schedule))
    monkeypatch.setattr(decode, "_MAX_RUN", 4)
    for (tokens, _, logprobs), (wanted, _, plain) in zip(
        play(new_sampler(model, schedule=schedule)), whole, strict=True
    ):
        assert tokens == wanted
        assert logprobs == pytest.approx(plain, abs=2e-5)


@pytest.mark.parametrize("schedule", Schedule)
def test_a_long_beginning_is_fed_once_and_each_row_samples_what_it_does_alone(model, monkeypatch, schedule):
    monkeypatch.setattr(decode, "_MAX_RUN", 8)
    fed = []

    def counting(cache, decode_lengths, extends, **keys):
        fed.append(sum(count for _, count in extends))
        return ragged_layout(cache, decode_lengths, extends, **keys)

    monkeypatch.setattr(decode, "ragged_layout", counting)
    prompts = [[5 + at * 7 % 80 for at in range(70)] + [9 + row, 5] for row in range(6)]

    async def sample(wanted):
        async with new_sampler(model, schedule=schedule) as sampler:
            return await asyncio.gather(
                *[sampler.complete(prompt, 6, PLAIN, seed) for seed, prompt in enumerate(prompts) if seed in wanted]
            )

    together = asyncio.run(sample(range(6)))
    num_fed = sum(fed)
    alone = [asyncio.run(sample([at]))[0] for at in range(6)]
    is_shared = schedule is not Schedule.INVARIANT
    assert num_fed == 72 + 5 * 8 if is_shared else num_fed >= 6 * 72
    for one, other in zip(together, alone, strict=True):
        assert one.tokens == other.tokens
        assert one.logprobs == (pytest.approx(other.logprobs, abs=2e-5) if is_shared else other.logprobs)


def test_what_a_row_draws_depends_on_its_own_seed_only(model):
    many = play(new_sampler(model), count=12)
    few = play(new_sampler(model), count=3)
    assert [tokens for tokens, _, _ in few] == [tokens for tokens, _, _ in many[:3]]


def test_greedy_sampling_equals_transformers_generate(model):
    async def main():
        sampler = new_sampler(model)
        prompt = [7, 9, 11, 40]
        sampler.open(["g"])
        request = SampleRequest("g", prompt, 20, Sampling(0.0, stop_token_ids=(STOP,)), seed=0)
        sample = await sampler.sample(request)
        await sampler.close()
        return prompt, sample.tokens

    prompt, tokens = asyncio.run(main())
    model.full.set_attn_implementation("sdpa")
    try:
        expected = model.full.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, 4), max_new_tokens=20, do_sample=False,
            eos_token_id=STOP, pad_token_id=0,
        )  # fmt: skip
    finally:
        model.full.set_attn_implementation("rlf")
    assert tokens == expected[0, 4:].tolist()


def test_a_turn_ends_with_its_stop_token_kept(model):
    everything = Sampling(stop_token_ids=tuple(range(96)))
    for tokens, mask, _ in play(new_sampler(model), sampling=everything):
        assert sum(mask) == 3, tokens


def test_a_stop_string_ends_a_turn_and_stays_in_the_tokens(model):
    async def main():
        sampler = new_sampler(model, decode=lambda tokens: "".join("<end>" if t % 2 else "x" for t in tokens))
        sampler.open(["s"])
        sample = await sampler.sample(SampleRequest("s", [5, 6], 30, Sampling(stop_strings=("<end>",)), seed=3))
        await sampler.close()
        return sample

    sample = asyncio.run(main())
    assert sample.finish is Finish.STOP
    assert sample.tokens[-1] % 2 and not any(token % 2 for token in sample.tokens[:-1])


def test_a_trajectory_waits_for_its_own_tools_only(model):
    """The tool of one returns when the other is over: with a barrier, neither would go on."""

    async def main():
        sampler = new_sampler(model, schedule=Schedule.CLOCK)
        sampler.open(["slow", "fast"])
        over = asyncio.Event()

        async def slow():
            tokens = [5, 6, 7]
            sample = await sampler.sample(SampleRequest("slow", tokens, 3, Sampling(), 0))
            await over.wait()
            tokens = [*tokens, *sample.tokens, 8]
            await sampler.sample(SampleRequest("slow", tokens, 3, Sampling(), 0, num_sampled=3))
            sampler.release("slow")

        async def fast():
            await converse(sampler, "fast", 4, turns=5)
            over.set()

        await asyncio.gather(slow(), fast())
        await sampler.close()
        return over.is_set()

    assert asyncio.run(asyncio.wait_for(main(), 60))


def test_cancelling_a_trajectory_frees_its_slot_for_the_next(model):
    async def main():
        sampler = new_sampler(model, schedule=Schedule.CLOCK, num_slots=1)
        sampler.open(["a", "b"])
        long = asyncio.create_task(sampler.sample(SampleRequest("a", [5, 6, 7], 140, Sampling(), seed=1)))
        other = asyncio.create_task(sampler.sample(SampleRequest("b", [5, 6, 7], 4, Sampling(), seed=2)))
        await asyncio.sleep(0.02)
        long.cancel()
        sampler.release("a")
        sample = await asyncio.wait_for(other, 10)
        await sampler.close()
        return sample

    assert len(asyncio.run(main()).tokens) == 4


def test_a_failing_model_fails_every_waiting_trajectory_instead_of_hanging(model, monkeypatch):
    def broken(*_args, **_keys):
        raise RuntimeError("out of order")

    async def main():
        sampler = new_sampler(model)
        monkeypatch.setattr(type(model), "logits", broken)
        sampler.open(["a", "b"])
        tasks = [sampler.sample(SampleRequest(n, [5, 6], 4, PLAIN, seed=1)) for n in ("a", "b")]
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)

    assert [str(error) for error in asyncio.run(main())] == ["out of order"] * 2


def test_what_stands_in_unused_places_of_the_cache_never_counts(model):
    cache = model.new_cache(4, 32)
    cache.fit(1, 1)
    assert not cache.write(0, torch.tensor([0]), torch.tensor([0]), *[torch.ones(1, 2, 1, 8)] * 2)[0][1:].any()


def test_a_model_that_computes_in_bfloat16_samples_what_its_trainer_sees(tmp_path):
    folder = save_random_model(tmp_path / "m")
    coarse = load_model(str(folder), dtype=torch.bfloat16, device=torch.device("cpu"))
    differences = []
    for tokens, mask, logprobs in play(new_sampler(coarse)):
        plain = [0.0, *recomputed(coarse, tokens)]
        differences += [abs(logprobs[i] - plain[i]) for i, sampled in enumerate(mask) if sampled]
    assert max(differences) < 0.5 and sum(differences) / len(differences) < 0.05


@pytest.mark.parametrize("schedule", Schedule)
def test_time_that_the_logical_schedule_holds_others_back_is_measured(model, schedule):
    """The second trajectory can sample while the first one's tool is out: only the logical order makes it wait."""
    sampler = new_sampler(model, schedule=schedule)

    async def talk(name, tool):
        tokens = [5, 6, 7]
        for turn in range(2):
            sample = await sampler.sample(SampleRequest(name, list(tokens), 4, Sampling(), 0, len(tokens) - 3))
            tokens += sample.tokens
            if turn == 0:
                await tool()
                tokens += [8]
        sampler.release(name)

    async def main():
        sampler.open(["slow", "fast"])
        over, stands_still, before = asyncio.Event(), asyncio.Event(), []
        wait = sampler._wait

        async def announced_wait():
            stands_still.set()
            await wait()

        sampler._wait = announced_wait

        async def fast():
            await talk("fast", lambda: asyncio.sleep(0))
            over.set()

        async def slow_tool():
            """Returns once the sampler stands still, or by the clock once the other one is over."""
            stands_still.clear()
            before.append(sampler.held_s)
            await (stands_still if schedule is Schedule.LOGICAL else over).wait()

        await asyncio.gather(fast(), talk("slow", slow_tool))
        await sampler.close()
        return before[0]

    before = asyncio.run(asyncio.wait_for(main(), 60))
    assert (sampler.held_s > before) is (schedule is Schedule.LOGICAL)


@pytest.mark.parametrize("schedule", Schedule)
def test_a_cache_that_grows_holds_what_a_reserved_one_does(model, schedule):
    reserved = play(new_sampler(model, schedule=schedule, num_slots=5))
    grown = play(new_sampler(model, schedule=schedule, num_slots=5, max_tokens=None))
    assert [tokens for tokens, _, _ in grown] == [tokens for tokens, _, _ in reserved]
    for (_, _, one), (_, _, other) in zip(grown, reserved, strict=True):
        assert one == pytest.approx(other, abs=2e-5)


def test_what_a_cache_has_grown_by_is_given_back(model):
    sampler = new_sampler(model, num_slots=5, max_tokens=None)
    play(sampler)
    assert sampler._slots.cache._data.numel() == 0


def test_conversations_with_settings_of_their_own_share_batches_and_get_what_each_gets_alone(model):
    settings = [Sampling(0.0), Sampling(1.3, top_k=3), Sampling(0.7, top_p=0.8), Sampling(stop_strings=("b",))]

    async def main(chosen):
        async with new_sampler(model, schedule=Schedule.CLOCK, max_tokens=None) as host:
            requests = [host.complete([5 + at, 6, 7], 12, sampling, seed=at) for at, sampling in chosen]
            return [sample.tokens for sample in await asyncio.gather(*requests)]

    numbered = list(enumerate(settings))
    assert asyncio.run(main(numbered)) == [asyncio.run(main([each]))[0] for each in numbered]


@pytest.mark.parametrize("schedule", Schedule)
def test_who_watches_a_turn_sees_its_tokens_grow_to_those_that_are_given(model, schedule):
    seen = []

    async def main():
        async with new_sampler(model, schedule=schedule, max_tokens=None) as host:
            watched = host.complete([5, 6, 7], 12, Sampling(), 3, lambda sample: seen.append([*sample.tokens]))
            return await asyncio.gather(watched, host.complete([5, 6], 12, Sampling(), 4))

    whole = asyncio.run(main())[0].tokens
    assert [whole[: len(part)] for part in seen] == seen
    assert 1 < len(seen) == len({len(part) for part in seen})
