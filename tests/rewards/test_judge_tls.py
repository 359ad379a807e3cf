"""Judges on another machine are asked over TLS with a key, and trusted by their certificate alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from rlf.core.servers import TlsCertificate, server_context

from ..certificates import make_certificate
from .judges import Judge

ROOT = Path(__file__).parents[2]
ASKS = """
import json, sys
from rlf.rewards import Term, TrajectoryFacts
from tests.rewards.scoring import score
term = Term.model_validate({"kind": "judge", "name": "good", "endpoints": [json.loads(sys.argv[1])]})
facts = TrajectoryFacts.model_validate({"question": "Where?", "answer": "In Lyon."})
(found,) = score(facts.trajectory("t"), term).scores
print(json.dumps([found.value, found.state, found.reason]))
"""


def asked(judge, trusted, key="a-long-word"):
    """What a process of its own gets from the judge: trust is read when it starts."""
    endpoint = judge.endpoint(api_key_env="JUDGE_API_KEY")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SSL_CERT_FILE": str(trusted), "JUDGE_API_KEY": key}
    done = subprocess.run(
        [sys.executable, "-c", ASKS, json.dumps(endpoint)], env=environment, capture_output=True, text=True, timeout=60
    )
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr


def test_a_judge_is_asked_over_tls_with_its_key_and_no_other_certificate_will_do(tmp_path):
    file, key = make_certificate(tmp_path)
    (tmp_path / "other").mkdir()
    other, _ = make_certificate(tmp_path / "other")
    judge = Judge(lambda body: '{"reason": "r", "score": 7}')
    context = server_context(TlsCertificate(file, key))
    assert context is not None
    judge.server.socket = context.wrap_socket(judge.server.socket, server_side=True)
    judge.url = judge.url.replace("http:", "https:")
    with judge.serving():
        assert asked(judge, file)[:2] == [6 / 9, "scored"]
        assert set(judge.keys) == {"Bearer a-long-word"}
        num_asked = len(judge.asked)
        refused = asked(judge, other)
    assert "its certificate is not trusted: self-signed certificate" in refused
    assert len(judge.asked) == num_asked  # nothing was sent to what could not show the certificate
