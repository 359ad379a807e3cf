"""A run's certificate: made once, kept by the hash of what it depends on."""

import pytest

from rlf.runs.opening import certificate_notice
from rlf.runs.players import open_chat


@pytest.fixture(scope="module")
def opened():
    from tests.runs.conftest import ROOT

    return open_chat([ROOT / "specs" / "search.yaml"], [])


def test_a_certificate_is_kept_and_found_again(opened, tmp_path, monkeypatch):
    spec, chat = opened
    first = certificate_notice(spec, chat, tmp_path)
    assert first.level == "info" and first.data["certificate"]["format"] == "hermes"
    monkeypatch.setattr("rlf.rollout.certificate.certify", None)
    assert certificate_notice(spec, chat, tmp_path) == first
    assert len(list((tmp_path / "certificates").glob("*.json"))) == 1


def test_other_tools_need_another_certificate(opened, tmp_path):
    spec, chat = opened
    certificate_notice(spec, chat, tmp_path)
    certificate_notice(spec.model_copy(update={"tools": spec.tools[:1]}), chat, tmp_path)
    assert len(list((tmp_path / "certificates").glob("*.json"))) == 2


@pytest.mark.parametrize("damage", ["", "[]", '{"checks": []}', "edited"])
def test_a_damaged_or_edited_certificate_is_made_again(damage, opened, tmp_path):
    spec, chat = opened
    first = certificate_notice(spec, chat, tmp_path)
    (kept,) = (tmp_path / "certificates").glob("*.json")
    whole = kept.read_text()
    kept.write_text(whole.replace('"num_turns": ', '"num_turns": 9') if damage == "edited" else damage)
    assert certificate_notice(spec, chat, tmp_path) == first
    assert kept.read_text() == whole
