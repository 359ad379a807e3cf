"""`make foreign`: what it says of an example, and of one that changed."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORLD = """
class Till:
    def reset(self):
        self.coins = 0

    def put(self, coin: int) -> str:
        '''Put a coin.

        Args:
            coin: its value.
        '''
        if coin > 5:
            raise OSError("the till is gone")
        self.coins += coin
        return str(self.coins)

    def get_reward(self) -> float:
        return float(self.coins)
"""


@pytest.fixture
def examples(monkeypatch):
    spec = importlib.util.spec_from_file_location("foreign_examples", ROOT / "benchmarks" / "foreign" / "examples.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_an_example_is_played_refused_or_failed_each_with_what_there_was(examples, tmp_path):
    file = tmp_path / "till.py"
    file.write_text(WORLD)

    def verdict(name, *coins):
        env = {"kind": "python", "callable": f"{file}:{name}"}
        return examples.play(examples.Example("till", env, [examples.call("put", coin=coin) for coin in coins]))

    assert verdict("Till", 1, 2) == "played 2 actions (ok), reward 3"
    assert verdict("Till", 9).startswith("failed: error: world python: step: OSError: the till is gone")
    assert verdict("Purse", 1).startswith("refused: ") and "Purse" in verdict("Purse", 1)


def test_what_changed_since_the_last_time_is_printed_and_ends_with_exit_code_3(examples, tmp_path, monkeypatch, capsys):
    verdict = ["played"]
    monkeypatch.setattr(examples, "BUILD", tmp_path)
    monkeypatch.setattr(examples, "PROJECTS", {"a": None, "b": None})
    monkeypatch.setattr(sys, "argv", ["examples.py"])
    monkeypatch.setattr(
        examples, "verdicts_of", lambda name, _: iter([(f"{name} pinned", verdict[0] if name == "a" else "same")])
    )
    assert [examples.main(), examples.main()] == [0, 0]
    verdict[0] = "failed: gone"
    capsys.readouterr()
    assert examples.main() == 3
    assert capsys.readouterr().out.splitlines()[-1] == "CHANGED a pinned: played  ->  failed: gone"
    assert json.loads((tmp_path / "results.json").read_text()) == {"a pinned": "failed: gone", "b pinned": "same"}


def test_what_the_newest_release_does_otherwise_is_said(examples, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(examples, "BUILD", tmp_path)
    monkeypatch.setattr(examples, "PROJECTS", {"a": None})
    monkeypatch.setattr(sys, "argv", ["examples.py"])
    verdicts = [("a pinned x", "played  [a 1]"), ("a newest x", "failed: gone  [a 2]"), ("a pinned y", "ok  [a 1]")]
    monkeypatch.setattr(examples, "verdicts_of", lambda *_: iter([*verdicts, ("a newest y", "ok  [a 2]")]))
    assert examples.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[4:] == ["DIFFERS a newest x: pinned played  ->  newest failed: gone"]


def test_a_repository_that_is_not_there_is_said(examples, monkeypatch, tmp_path):
    monkeypatch.setenv("FOREIGN_SOURCES", str(tmp_path))
    monkeypatch.setattr(examples, "SOURCES", tmp_path)
    found = list(examples.verdicts_of("x", examples.Project([], [], "owner/name")))
    assert found == [("x", "not there: owner/name cannot be cloned")]
