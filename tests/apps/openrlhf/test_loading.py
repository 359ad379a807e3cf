"""A person who waits for a job to load sees which model does, and that something still happens."""

from __future__ import annotations

from rlf.apps.openrlhf.log import Loading


def test_each_model_is_named_once_with_the_time_and_a_silence_is_broken_with_the_last_line():
    now = [0.0]
    loading = Loading(lambda: now[0])
    assert list(loading.read(["Connected to Ray cluster."])) == []
    now[0] = 7.0
    lines = ["(RolloutRayActor pid=3) Loading weights", "(RolloutRayActor pid=3) half", "(PPOTrainer pid=4) dataset: x"]
    assert list(loading.read(lines)) == ["vLLM loads the model (7 s)"]
    now[0] = 26.0
    assert list(loading.read([])) == []
    now[0] = 27.0
    assert list(loading.read([])) == ["still loading; the job's last line: (PPOTrainer pid=4) dataset: x (27 s)"]
    assert list(loading.read(["(CriticModelActor pid=9) " + "x" * 500])) == ["the critic is loaded (27 s)"]
    now[0] = 50.0
    (words,) = loading.read([])
    assert len(words) < 160
    assert not loading.is_over
    assert list(loading.read(["(PPOTrainer pid=4) Episode [1/1]:   0%|", "(PolicyModelActor pid=5) later"])) == []
    assert loading.is_over
