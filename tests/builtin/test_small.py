"""The small model: its tokenizer, starting weights, demonstrations and checkpoint."""

import json
import random

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.embedded.small.build import SHAPE, heldout_tasks, play_tasks
from benchmarks.embedded.small.demonstrations import Fault, careless_row, clean_row, copy_row, sample_task
from benchmarks.embedded.small.lookups import LOOKUP_KINDS
from benchmarks.embedded.small.pretrain import PolicyPlan, _skills_batch, make_stages
from benchmarks.embedded.small.programs import COMPOSED_PROGRAMS, PROGRAM_KINDS
from benchmarks.embedded.small.queries import COMPOSED_KINDS, QUERY_KINDS, sample_query
from benchmarks.embedded.small.tokenizer import WHOLE_WORDS, build_tokenizer
from benchmarks.embedded.small.weights import start_copying
from benchmarks.embedded.small.words import COLUMNS, HELDOUT_COLUMNS, random_value
from benchmarks.embedded.tiny.layout import data_ids, opening_ids, parse_calls
from benchmarks.embedded.tiny.model import create_model
from benchmarks.embedded.tiny.pretrain import SkillsPlan, train_habits, train_skills
from rlf.builtin.names import builtin_path
from rlf.chat import FORMATS
from rlf.types import Message, ToolDescription

CHECKPOINT = builtin_path("small")

TOKENIZER = build_tokenizer()
CARD = json.loads((CHECKPOINT / "card.json").read_text())
KINDS = (*LOOKUP_KINDS, *QUERY_KINDS, *PROGRAM_KINDS)


def turns_of(row):
    """The texts that the model is to write, turn by turn."""
    runs, current = [], []
    for token_id, action in zip([*row.token_ids, 0], [*row.is_action, False], strict=True):
        if action:
            current.append(token_id)
        elif current:
            runs.append(TOKENIZER.decode(current).removesuffix("<|im_end|>"))
            current = []
    return runs


def test_a_word_is_cut_the_same_wherever_it_stands():
    rng = random.Random(0)
    for value in [random_value(rng) for _ in range(300)] + ["Zoë O'Brien", "x_y-9", "naïve"]:
        ids = data_ids(TOKENIZER, value)
        assert TOKENIZER.decode(ids) == value
        for before, after in (
            ('{"name": "', '"}}\n'),
            ("city: ", ", age"),
            ("What is the age of ", "?"),
            (" = '", "' AND "),
        ):
            around = TOKENIZER.encode(before + value + after)
            assert any(around[place : place + len(ids)] == ids for place in range(len(around))), (before, value)


def test_a_prompt_is_what_the_chat_template_writes():
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "column": {"type": "string"}}}
    tool = ToolDescription("look_up", "Read one column of a name.", schema)
    chat = FORMATS.get("hermes")(TOKENIZER, [tool])
    written = chat.prompt((Message("user", "What is the age of Bo?"),), [tool])
    system = "Tools:\n- look_up(name, column): Read one column of a name."
    assert written == opening_ids(TOKENIZER, system, "What is the age of Bo?")


@pytest.mark.parametrize("kind", KINDS)
def test_a_clean_row_makes_the_right_call_then_answers(kind):
    rng = random.Random(kind)
    for _ in range(20):
        task = sample_task(rng, kind)
        call, answer = turns_of(clean_row(TOKENIZER, task))
        assert (parse_calls(call), answer) == ([task.call], task.answer)
        assert task.answer in task.result or kind == "missing"


@pytest.mark.parametrize("fault", list(Fault))
def test_a_careless_row_misses_the_answer(fault):
    rng = random.Random(fault.value)
    for kind in KINDS:
        if kind != "missing":
            task = sample_task(rng, kind)
            assert turns_of(careless_row(TOKENIZER, rng, task, fault))[-1] != task.answer


def test_no_batch_has_a_heldout_column_or_composition():
    texts = "".join(
        TOKENIZER.decode(row.token_ids) for step in range(40) for row in _skills_batch(TOKENIZER, f"{step}")
    )
    assert not set(HELDOUT_COLUMNS) & (set(COLUMNS) | set(WHOLE_WORDS))
    assert not set(COMPOSED_KINDS) & set(QUERY_KINDS) and not set(COMPOSED_PROGRAMS) & set(PROGRAM_KINDS)
    assert "' AND town = '" in texts and "SELECT sum(number) FROM sale WHERE town" in texts
    for query in texts.split("sum(number) FROM sale WHERE product = '")[1:]:
        assert " AND " not in query.split('"}}')[0]
    assert "** " not in "".join(text.split(")))")[0] for text in texts.split("map(int, str(")[1:])


def test_every_query_of_the_shop_is_of_a_known_wording():
    rng = random.Random(0)
    queries = {kind: sample_query(rng, kind).call[1]["query"].split("'")[0] for kind in (*QUERY_KINDS, *COMPOSED_KINDS)}
    path = CHECKPOINT.parents[1] / "shop/data/train.jsonl"
    for line in path.read_text().splitlines():
        assert json.loads(line)["query"].split("'")[0] in queries.values()


def test_a_careless_sum_of_the_shop_has_a_second_condition_that_nobody_asked_for():
    rng = random.Random(0)
    for kind, asked, added in (("shop_sum", "product", "town"), ("shop_sum_town", "town", "product")):
        task = sample_query(rng, kind)
        right, careless = task.call[1]["query"], task.wrong_call[1]["query"]
        condition = careless.removeprefix(f"{right} AND ")
        assert f"WHERE {asked} = " in right and condition.startswith(f"{added} = '")
        assert condition.split("'")[1] not in task.question


def test_two_heads_look_for_what_followed_a_token_before_any_training():
    model = create_model(TOKENIZER, 0, SHAPE)
    rng = random.Random(0)
    tokens_BT = torch.tensor([[rng.randrange(300, len(TOKENIZER)) for _ in range(12)] * 2 for _ in range(16)])

    def attended():
        """The mean attention from the second time a token stands to what followed the first."""
        with torch.inference_mode():
            attention_BHTT = model(tokens_BT, output_attentions=True).attentions[1]
        return [attention_BHTT[:, head, range(12, 23), range(1, 12)].mean().item() for head in (0, 1)]

    model.set_attn_implementation("eager")
    before = attended()
    start_copying(model, 0)
    assert max(before) < 0.1 and min(attended()) > 0.25


def test_both_stages_are_reproducible_step_for_step():
    weights = []
    for _ in range(2):
        model = create_model(TOKENIZER, 0, SHAPE)
        start_copying(model, 0)
        plans = SkillsPlan(warmup_steps=1, constant_steps=1, decay_steps=1), PolicyPlan(steps=1, batch_size=4)
        skills, habits = make_stages(TOKENIZER, 0, *plans)
        train_skills(model, TOKENIZER, skills)
        train_habits(model, TOKENIZER, habits)
        weights.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    assert torch.equal(*weights)


def test_a_copy_row_repeats_only_what_it_read():
    rng = random.Random(0)
    for _ in range(20):
        row = copy_row(TOKENIZER, rng)
        read = {token for token, action in zip(row.token_ids, row.is_action, strict=True) if not action}
        assert set(row.token_ids) - read <= set(TOKENIZER.encode("\n"))


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(CHECKPOINT)


def test_the_checkpoint_is_small_and_has_the_tokenizer_that_the_code_builds(model):
    tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT)
    assert tokenizer.get_vocab() == TOKENIZER.get_vocab()
    assert tokenizer.chat_template == TOKENIZER.chat_template
    assert model.dtype == torch.float32
    assert sum(parameter.numel() for parameter in model.parameters()) == CARD["model"]["parameters"] < 1_200_000
    assert sum(path.stat().st_size for path in CHECKPOINT.iterdir()) < 5_000_000


def test_the_card_shows_skills_before_and_a_poor_policy_after():
    skills, base = CARD["skills"]["greedy"], CARD["base"]["sampled"]
    for group in ("cell", "cell_new_columns", "queries", "programs"):
        assert skills[group] >= CARD["skills"]["plan"]["criterion"]
        assert 0.05 < base[group] < 0.35


def test_a_figure_of_the_card_is_found_again(model):
    tasks = {"cell": heldout_tasks(64, "again")["cell"]}
    # Two standard errors of the difference of two figures of 64 tasks at 0.25 are 0.15.
    assert play_tasks(model, TOKENIZER, tasks, 7)["cell"] == pytest.approx(CARD["base"]["sampled"]["cell"], abs=0.2)
