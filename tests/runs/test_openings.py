"""What a report shows of a prompt's tokens holds no secret, as the texts that are stored hold none."""

from types import SimpleNamespace

from rlf.runs.trajectories import Openings

from ..reports.synthetic import trajectory


def test_a_decoded_prompt_is_shown_without_the_secrets_in_it(monkeypatch):
    monkeypatch.setenv("ACCOUNT", "hunter2+hunter2")
    monkeypatch.setenv("MY_TOKEN", "s3cr3t/s3cr3t")
    plan = {"interpolated": [{"path": ["tools", 0], "text": "${oc.env:ACCOUNT}"}]}
    record = SimpleNamespace(plan=plan, cwd=None, files=())
    openings = Openings(SimpleNamespace(record=record))
    openings.__dict__["plain_decoder"] = lambda _tokens: "system: hunter2+hunter2 and s3cr3t/s3cr3t"
    assert openings(trajectory(0, succeeds=True)) == "system: [redacted] and [redacted]"
