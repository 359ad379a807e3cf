"""Reading YAML: places, the core schema, and files made to do harm."""

import json
import math
from pathlib import Path

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rlf.core import Place
from rlf.spec.nodes import dotted, plain, walk
from rlf.spec.reader import MAX_BYTES, read_file, read_override


def read(text: str | bytes, folder: Path):
    path, faults = folder / "a.yaml", []
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    found = read_file(path, None, faults)
    return (found[0] if found else None), [fault.message for fault in faults]


def test_scalars_follow_the_core_schema(tmp_path):
    text = (
        "a: 1e-5\nb: yes\nc: 2024-01-01\nd: 0x1F\ne: ~\nf: .5\ng: 1:30\nh: '7'\ni: TRUE\nj: -3\nk: 1_000\nl: !!str 5\n"
    )
    root, faults = read(text, tmp_path)
    assert faults == []
    assert list(plain(root).values()) == [1e-5, "yes", "2024-01-01", 31, None, 0.5, "1:30", "7", True, -3, "1_000", "5"]


def test_every_key_and_value_knows_its_place(tmp_path):
    root, _ = read("a:\n  bc: [1, {d: 2}]\n", tmp_path)
    item = root.get("a").get("bc")
    inner = item.get(1).get("d")
    assert (item.key_place.line, item.key_place.column, item.place.column) == (2, 3, 7)
    assert (inner.key_place.column, inner.place.column, inner.path) == (12, 15, ("a", "bc", 1, "d"))


def test_an_anchor_may_be_used_again(tmp_path):
    root, faults = read("a: &x [1, 2]\nb: *x\n", tmp_path)
    assert (plain(root), faults) == ({"a": [1, 2], "b": [1, 2]}, [])


def test_anchors_that_multiply_are_stopped(tmp_path):
    levels = "".join(f"{b}: &{b} [{', '.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefghi", "bcdefghij", strict=True))
    _, faults = read(f"a: &a [{', '.join('1' * 9)}]\n{levels}", tmp_path)
    assert faults == ["the document grows beyond 50,000 values. Check its anchors and nesting."]


def test_an_anchor_within_itself_is_stopped(tmp_path):
    assert read("a: &a [*a]", tmp_path)[1] == ["the document grows beyond 60 levels. Check its anchors and nesting."]


def test_a_pile_of_brackets_is_stopped(tmp_path):
    assert read("a: " + "[" * 20_000, tmp_path)[1] == ["nested too deeply to be read. Flatten it."]


def test_a_large_file_is_not_read(tmp_path):
    _, faults = read(b"a: " + b"1" * MAX_BYTES, tmp_path)
    assert faults == ["the file has 1,000,003 bytes; at most 1,000,000 are read. Move data to data files."]


def test_a_number_of_many_digits_is_refused(tmp_path):
    _, faults = read("a: " + "1" * 5000, tmp_path)
    assert faults == ["got a number of 5000 digits; at most 40 are read. Quote it if it is text."]


def test_text_that_is_not_utf8_is_refused(tmp_path):
    (fault,) = read(b"a: \xff", tmp_path)[1]
    assert "byte 3 is 0xff: Latin-1" in fault and "A spec is UTF-8 text. Save it as UTF-8" in fault
    (fault,) = read("a: 1".encode("utf-16"), tmp_path)[1]
    assert "it is UTF-16" in fault and "iconv -f UTF-16 -t UTF-8" in fault
    (fault,) = read("a: 1".encode("utf-32"), tmp_path)[1]
    assert "it is UTF-32" in fault and "iconv -f UTF-32 -t UTF-8" in fault
    (fault,) = read("\ufffd".encode() + b"\x89PNG\0", tmp_path)[1]
    assert "this is no text" in fault and "Name another file" in fault


def test_a_tag_of_a_value_that_is_none_of_its_kind_is_refused(tmp_path):
    text = "a: !!int abc\nb: !!float x\nc: !!bool yes\nd: !!null 1\ne: !!int 5\nf: !!str 5"
    node, faults = read(text, tmp_path)
    assert [fault.partition(";")[0] for fault in faults] == [
        f"got the tag !!{name}" for name in ("int", "float", "bool", "null")
    ]
    assert node.get("e").value == 5 and node.get("f").value == "5"


def test_a_key_with_control_characters_is_shown_on_one_line():
    assert dotted(("a", "b\n\x1b[31m", 1)) == r"a.b\n\x1b[31m[1]"


def test_a_byte_order_mark_is_read_over(tmp_path):
    assert plain(read(b"\xef\xbb\xbfa: 1", tmp_path)[0]) == {"a": 1}


FINITE = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | FINITE | st.text(st.characters(codec="ascii")),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text("abc", min_size=1), children, max_size=4),
    max_leaves=15,
)


@settings(deadline=None)
@given(JSON)
def test_what_json_writes_is_read_back(value):
    faults = []
    node = read_override(json.dumps(value), Place("override"), (), Path(), faults)
    assert faults == [] and node is not None and plain(node) == value
    assert all(child.place == Place("override") for _, child in walk(node))


@settings(deadline=None)
@given(st.text("ab: -[]{}\n'\"#&*!|>%@,1.\t", max_size=30))
def test_any_text_gives_a_value_or_a_fault_and_agrees_with_pyyaml_on_what_is_yaml(text):
    faults = []
    node = read_override(text, Place("override"), (), Path(), faults)
    assert (node is None) <= bool(faults)
    try:
        yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError:
        assert faults


@settings(deadline=None)
@given(FINITE)
def test_numbers_keep_their_value(value):
    node = read_override(repr(value), Place("override"), (), Path(), [])
    assert node is not None and math.isclose(float(node.value), value, rel_tol=0)


def test_two_halves_of_a_character_are_that_character_as_json_escapes_it(tmp_path):
    root, faults = read('{"a": "\\ud83d\\ude00", "\\ud83d\\ude00": 1}', tmp_path)
    assert (plain(root), faults) == ({"a": "😀", "😀": 1}, [])


def test_a_path_that_is_not_utf_8_is_a_fault(tmp_path):
    path, faults = tmp_path / "caf\udce9.yaml", []
    path.write_text("a: 1")
    assert read_file(path, None, faults) is None
    assert "not UTF-8" in faults[0].message
    str(faults[0]).encode()
