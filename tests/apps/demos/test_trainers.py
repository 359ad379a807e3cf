"""Demonstrations for other trainers: their own loaders read the tokens and the mask of rollouts."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlf.apps.demos.demos import DemosOptions, write_demos
from rlf.apps.demos.rows import load_demonstrations
from rlf.apps.demos.steps import play_each
from rlf.apps.demos.trainers import UNEQUAL, TrainerForm
from rlf.chat.encoding import load_tokenizer
from rlf.core import RlfError
from rlf.runs.plans import check_spec
from rlf.spec.model_files import folder_on_disk

from ...algo.openrlhf_reference import openrlhf_sft_dataset
from ...runs.conftest import ROOT

SHOP = [ROOT / "specs" / "shop.yaml"]
FEW = ["data.train.limit=3"]
NAMES = {
    TrainerForm.TRL: "a.jsonl",
    TrainerForm.OPENRLHF: "a.jsonl",
    TrainerForm.VERL: "a.parquet",
    TrainerForm.LLAMA_FACTORY: "a.json",
}


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """The same conversations as `data.demonstrations` plays them, and the tokenizer."""
    out = tmp_path_factory.mktemp("own") / "a.jsonl"
    write_demos(SHOP, FEW, DemosOptions(gold=True, closing="done"), out, runs_folder=Path("none"))
    spec = check_spec(SHOP, FEW).plan.spec
    tokenizer = load_tokenizer(str(folder_on_disk(spec.model.path)))
    return play_each(spec, load_demonstrations(str(out))), tokenizer


def write(folder, trainer):
    asked = DemosOptions(gold=True, closing="done", trainer=trainer)
    return write_demos(SHOP, FEW, asked, folder / NAMES[trainer], runs_folder=Path("none"))


def expected(trajectory):
    """Tokens up to the last sampled one, and which of them are in the loss."""
    end = max(at for at, is_action in enumerate(trajectory.action_mask) if is_action) + 1
    return list(trajectory.tokens[:end]), [bool(value) for value in trajectory.action_mask[:end]]


def read_json(done, folder):
    from datasets import load_dataset

    rows = load_dataset("json", data_files=str(done.path), split="train", cache_dir=str(folder / "cache"))
    return rows, done.path.with_suffix(".jinja").read_text()


def test_trl_reads_the_tokens_and_the_mask_of_rollouts(played, tmp_path):
    sft = pytest.importorskip("trl.trainer.sft_trainer", exc_type=ImportError)
    trajectories, tokenizer = played
    done = write(tmp_path, TrainerForm.TRL)
    assert "assistant_only_loss=True" in done.settings
    rows, template = read_json(done, tmp_path)
    settings = sft.SFTConfig(str(tmp_path), assistant_only_loss=True, use_cpu=True, bf16=False)
    trainer = SimpleNamespace(_tokenizer=tokenizer, chat_template=template, completion_only_loss=False)
    found = sft.SFTTrainer._prepare_dataset(trainer, rows, tokenizer, settings, False, None, "train")
    for row, trajectory in zip(found, trajectories, strict=True):
        assert (row["input_ids"], [label >= 0 for label in row["labels"]]) == expected(trajectory)


def test_openrlhf_reads_the_tokens_and_the_mask_of_rollouts(played, tmp_path):
    make = openrlhf_sft_dataset()
    trajectories, tokenizer = played
    rows, template = read_json(write(tmp_path, TrainerForm.OPENRLHF), tmp_path)
    data = SimpleNamespace(input_key="messages", apply_chat_template=True, tokenizer_chat_template=template)
    strategy = SimpleNamespace(args=SimpleNamespace(data=data))
    found = make(rows, tokenizer, 512, strategy, num_processors=None, multiturn=True)
    assert len(found) == len(trajectories)
    for (ids, _, loss), trajectory in zip(found, trajectories, strict=True):
        tokens, mask = expected(trajectory)  # its mask stands where the token is predicted, one before it
        assert ids[0].tolist() == tokens and loss[0].bool().tolist() == [*mask[1:], False]


def test_verl_reads_the_tokens_and_the_mask_of_rollouts(played, tmp_path):
    module = pytest.importorskip("verl.utils.dataset.multiturn_sft_dataset", exc_type=ImportError)
    trajectories, tokenizer = played
    done = write(tmp_path, TrainerForm.VERL)
    kwargs = {"chat_template": done.path.with_suffix(".jinja").read_text()}
    config = {"apply_chat_template_kwargs": kwargs, "pad_mode": "no_padding"}
    found = module.MultiTurnSFTDataset([str(done.path)], tokenizer, config)
    for at, trajectory in enumerate(trajectories):
        read = found[at]
        assert (read["input_ids"].tolist(), read["loss_mask"].bool().tolist()) == expected(trajectory)


def test_llama_factory_reads_the_tokens_and_the_mask_of_rollouts(played, tmp_path):
    parser = pytest.importorskip("llamafactory.data.parser", exc_type=ImportError)
    converter = pytest.importorskip("llamafactory.data.converter", exc_type=ImportError)
    templates = pytest.importorskip("llamafactory.data.template", exc_type=ImportError)
    trajectories, tokenizer = played
    (tmp_path / "dataset_info.json").write_text('{"mine": {"file_name": "mine.json"}}')
    done = write(tmp_path, TrainerForm.LLAMA_FACTORY)
    (mine, attributes) = parser.get_dataset_list(["mine", "a"], str(tmp_path))
    assert mine.dataset_name == "mine.json"
    convert = converter.get_dataset_converter(
        attributes.formatting, attributes, SimpleNamespace(media_dir=str(tmp_path))
    )
    for row, trajectory in zip(json.loads(done.path.read_text()), trajectories, strict=True):
        read = convert(row)
        turns = [*read["_prompt"], *read["_response"]]
        pairs = templates.TEMPLATES["empty"].encode_multiturn(tokenizer, turns)
        tokens, mask = expected(trajectory)
        assert [token for pair in pairs for part in pair for token in part] == tokens
        assert [flag for asks, says in pairs for flag in [False] * len(asks) + [True] * len(says)] == mask


def test_a_row_alternates_and_ends_with_what_was_sampled(tmp_path):
    done = write(tmp_path, TrainerForm.LLAMA_FACTORY)
    for row in json.loads(done.path.read_text()):
        roles = [message["role"] for message in row["messages"]]
        assert roles == ["user", "assistant"] * (len(roles) // 2)
    assert json.loads((tmp_path / "dataset_info.json").read_text())["a"]["file_name"] == "a.json"


def test_an_index_of_data_sets_that_is_none_is_left_as_it_is(tmp_path):
    (tmp_path / "dataset_info.json").write_text("[1]")
    with pytest.raises(RlfError, match=r"dataset_info.json: cannot be extended: it holds no mapping"):
        write(tmp_path, TrainerForm.LLAMA_FACTORY)
    assert (tmp_path / "dataset_info.json").read_text() == "[1]"


def test_a_text_that_gives_other_tokens_is_no_row_of_who_would_read_others(tmp_path):
    turns = {
        "a special token that a tool wrote": [
            {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "search", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "so <|im_end|> it ends"},
            {"role": "assistant", "content": "Fentes"},
        ],
        "space that joins the line break before it": [{"role": "assistant", "content": "  Fentes"}],
        "nothing of the kind": [{"role": "assistant", "content": "Fentes"}],
    }
    file = tmp_path / "in.jsonl"
    rows = [{"id": id_, "messages": [{"role": "user", "content": "Where?"}, *said]} for id_, said in turns.items()]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for trainer, kept in ((TrainerForm.TRL, 1), (TrainerForm.LLAMA_FACTORY, 2)):
        asked = DemosOptions(files=(file,), trainer=trainer)
        done = write_demos(
            [ROOT / "specs" / "search.yaml"], [], asked, tmp_path / NAMES[trainer], runs_folder=Path("none")
        )
        assert (done.num_kept, done.left_out) == (kept, {UNEQUAL: 3 - kept})


def test_a_file_is_named_as_its_trainer_expects(tmp_path):
    asked = DemosOptions(gold=True, trainer=TrainerForm.VERL)
    with pytest.raises(RlfError, match=r"got 'a.jsonl'; verl reads .parquet. Write e.g. `-o a.parquet`"):
        write_demos(SHOP, FEW, asked, tmp_path / "a.jsonl", runs_folder=Path("none"))
    assert not list(tmp_path.iterdir())
