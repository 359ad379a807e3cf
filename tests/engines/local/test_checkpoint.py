import json

import pytest
import torch

from rlf.algo.advantages.gae import Gae
from rlf.core import RunError
from rlf.engines.local.checkpoint import (
    TrainingProgress,
    kept_steps,
    note_best,
    prune_checkpoints,
    read_progress,
    read_rewards,
    save_checkpoint,
)
from rlf.engines.local.model import load_model
from rlf.engines.local.restored import load_checkpoint
from rlf.engines.saved_model import find_file_damage
from rlf.spec.models import KlSpec, LoraSpec
from tests.engines.local.test_update import batch_of, new_updater, weights

from ...models import save_random_model


def model_in(folder, lora=None, **keys):
    path = folder if folder.exists() else save_random_model(folder, **keys)
    return load_model(str(path), dtype=torch.float32, device=torch.device("cpu"), lora=lora)


@pytest.mark.parametrize("lora", [None, LoraSpec(rank=4, alpha=8)])
@pytest.mark.parametrize("keys", [{}, {"algorithm": Gae()}, {"weight_decay": 0.1}], ids=["grpo", "gae", "decay"])
def test_a_restored_updater_goes_on_to_the_same_bits(tmp_path, lora, keys):
    torch.manual_seed(1)
    straight = new_updater(model_in(tmp_path / "m", lora), **keys)
    straight.update(batch_of(), 1)
    path, _ = save_checkpoint(tmp_path / "c", straight, TrainingProgress(1, 16))
    torch.manual_seed(1)
    resumed = new_updater(model_in(tmp_path / "m", lora), **keys)
    load_checkpoint(path, resumed)
    assert read_progress(path) == TrainingProgress(1, 16)
    first, second = straight.update(batch_of(), 2), resumed.update(batch_of(), 2)
    assert first.metrics == second.metrics
    assert torch.equal(weights(straight.model), weights(resumed.model))


def test_a_reference_that_followed_the_policy_is_in_the_checkpoint(tmp_path):
    kl = KlSpec(coef=0.1, sync_every=1)

    def updater():
        return new_updater(model_in(tmp_path / "m"), reference=model_in(tmp_path / "m"), kl=kl)

    straight, resumed = updater(), updater()
    straight.update(batch_of(), 1)
    path, _ = save_checkpoint(tmp_path / "c", straight, TrainingProgress(1, 16))
    load_checkpoint(path, resumed)
    assert torch.equal(weights(straight.reference), weights(resumed.reference))
    assert straight.update(batch_of(), 2).metrics == resumed.update(batch_of(), 2).metrics


def test_what_reward_terms_have_counted_is_in_the_checkpoint(tmp_path):
    counted = {"good": {"charts": {"errors": 1.5}}}
    path, _ = save_checkpoint(tmp_path / "c", new_updater(model_in(tmp_path / "m")), TrainingProgress(1), counted)
    assert read_rewards(path) == counted
    path, _ = save_checkpoint(tmp_path / "d", new_updater(model_in(tmp_path / "m")), TrainingProgress(1))
    assert read_rewards(path) == {}


def test_a_checkpoint_with_a_changed_or_missing_file_is_not_whole(tmp_path):
    path, sha256 = save_checkpoint(tmp_path / "c", new_updater(model_in(tmp_path / "m")), TrainingProgress(1))
    assert find_file_damage(path, sha256) is None
    assert find_file_damage(path, "another") == "manifest.json differs from what was written"
    kept = (path / "progress.json").read_text()
    (path / "progress.json").write_text(kept.replace("1", "2"))
    assert find_file_damage(path, sha256) == "progress.json differs from what was written"
    (path / "progress.json").unlink()
    assert find_file_damage(path, sha256) == "progress.json is gone"
    assert find_file_damage(tmp_path / "nowhere") == "the folder is gone"


def test_the_manifest_names_every_file(tmp_path):
    path, _ = save_checkpoint(tmp_path / "c", new_updater(model_in(tmp_path / "m")), TrainingProgress(1))
    named = set(json.loads((path / "manifest.json").read_text()))
    assert named == {p.name for p in path.iterdir()} - {"manifest.json"}


def test_a_checkpoint_of_another_model_is_refused_by_name(tmp_path):
    path, _ = save_checkpoint(tmp_path / "c", new_updater(model_in(tmp_path / "m")), TrainingProgress(1))
    with pytest.raises(RunError, match="does not fit the model"):
        load_checkpoint(path, new_updater(model_in(tmp_path / "other", vocab_size=64)))


def test_the_newest_checkpoints_and_the_best_one_are_kept(tmp_path):
    for step in (1, 2, 3, 4, 9):
        (tmp_path / f"step-{step:06d}").mkdir()
    kept = kept_steps(tmp_path, 2, TrainingProgress(4, best_step=1))
    assert kept == (1, 3, 4), "step 9 is left over from before the run went back"
    prune_checkpoints(tmp_path, kept)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-000001", "step-000003", "step-000004"]


def test_the_best_step_is_the_first_after_the_start_with_the_highest_success():
    progress = note_best(TrainingProgress(0, evaluated=0), 0.9)
    assert progress.best_step is None
    for step, success in ((3, 0.5), (6, float("nan")), (9, 0.7), (12, 0.7), (15, 0.6)):
        progress = note_best(TrainingProgress(step, 0, step, progress.best_step, progress.best_success), success)
    assert (progress.best_step, progress.best_success) == (9, 0.7)
