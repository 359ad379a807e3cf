"""What the members of a sweep are."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlf.apps.sweep.axes import alternatives, members_of
from rlf.core import RlfError, SpecError


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(text):
        (tmp_path / "sweep.yaml").write_text(text)
        return Path("sweep.yaml")

    return write


@pytest.mark.parametrize(
    ("override", "values"),
    [
        ("seed=0,1,2", ["seed=0", "seed=1", "seed=2"]),
        ("a.b=1e-6, 3e-6", ["a.b=1e-6", "a.b=3e-6"]),
        ("a=[1, 2],[3]", ["a=[1, 2]", "a=[3]"]),
        ("a={kind: gae, lam: 1},grpo", ["a={kind: gae, lam: 1}", "a=grpo"]),
        ("a='x,y',z", ["a='x,y'", "a=z"]),
        ("a=it's,b", ["a=it's", "a=b"]),
        ("a=${oc.env:X,1}", ["a=${oc.env:X,1}"]),
        ("a=x", ["a=x"]),
        ("~a,b", ["~a,b"]),
    ],
)
def test_commas_outside_brackets_and_quotes_part_the_values(override, values):
    assert alternatives(override) == values


def test_members_are_every_combination_and_the_last_varies_fastest():
    fixed, members = members_of(["a=1,2", "x=0", "b=3,4", "~y"], None, commas=True)
    assert fixed == ["x=0", "~y"]
    assert members == [("a=1", "b=3"), ("a=1", "b=4"), ("a=2", "b=3"), ("a=2", "b=4")]


def test_a_file_has_a_grid_and_sets(sweep):
    file = sweep(
        "grid: {seed: [0, 1]}\nsets:\n"
        "  - {train.algorithm: rloo, rollout.stop: [a]}\n  - {train.algorithm: {kind: gae}, name: 'true'}\n"
    )
    fixed, members = members_of(["x=a,b"], file, commas=False)
    assert fixed == ["x=a,b"]
    assert members == [
        ("train.algorithm=rloo", 'rollout.stop=["a"]', "seed=0"),
        ("train.algorithm=rloo", 'rollout.stop=["a"]', "seed=1"),
        ('train.algorithm={"kind": "gae"}', 'name="true"', "seed=0"),
        ('train.algorithm={"kind": "gae"}', 'name="true"', "seed=1"),
    ]


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True), min_size=1, max_size=3))
def test_there_are_as_many_members_as_the_product_of_the_values(axes):
    overrides = [f"k{number}={','.join(map(str, values))}" for number, values in enumerate(axes)]
    if all(len(values) == 1 for values in axes):
        with pytest.raises(RlfError, match="nothing to sweep over"):
            members_of(overrides, None, commas=True)
        return
    fixed, members = members_of(overrides, None, commas=True)
    expected = 1
    for values in axes:
        expected *= len(values)
    assert len(members) == len(set(members)) == expected
    assert all(len(fixed) + len(member) == len(axes) for member in members)


def test_a_sweep_that_would_never_end_is_refused():
    values = ",".join(map(str, range(100)))
    with pytest.raises(RlfError, match="the sweep has 10000 members; at most 1000 are allowed"):
        members_of([f"a={values}", f"b={values}"], None, commas=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "1:1: the sweep is empty; expected `grid`, `sets` or both. Write e.g. `grid: {seed: [0]}`."),
        ("seed: [0, 1]", "1:1 seed: got a list of values outside `grid`. Write `grid: {seed: [...]}`."),
        ("gird: {}", "1:1 gird: unknown key 'gird'; did you mean 'grid'? (known: grid, sets). Rename it."),
        (
            "grid: {seed: 1}",
            "1:14 grid.seed: got 1; expected a list of values. Write e.g. `seed: [...]`.",
        ),
        (
            "grid: [1]",
            "1:7 grid: got a list of 1; expected a mapping of keys to lists of values. "
            "Write e.g. `grid: {seed: [0, 1]}`.",
        ),
        (
            "sets: [1]",
            "1:8 sets[0]: got 1; expected a list of mappings of overrides. "
            "Write e.g. `sets: [{train.algorithm: rloo, seed: 1}]`.",
        ),
    ],
)
def test_a_file_that_is_no_sweep_is_reported_with_its_place(sweep, text, message):
    with pytest.raises(SpecError) as caught:
        members_of([], sweep(text), commas=False)
    assert str(caught.value) == f"sweep.yaml:{message}"
