"""Worlds of other packages as they come: each `real_PACKAGE.py` here passes in an environment that has the package.

`make .venv/worlds/ready` makes these environments, beside rlf's own. Without them these tests skip.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

INSTALLED = Path(sys.prefix) / "worlds"
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("package", ["text"])
def test_worlds_of_a_package_are_played_as_they_come(package, tmp_path):
    python = INSTALLED / package / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{python} is not there: `make .venv/worlds/ready` installs it")
    tests = [f"tests/environments/real_{package}.py", f"--basetemp={tmp_path / 'tests'}"]
    passed = subprocess.run(
        [python, "-m", "pytest", "-q", "-rs", "-n0", "-pno:cacheprovider", *tests],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert passed.returncode == 0, passed.stdout[-4000:]
    if "skipped" in passed.stdout.splitlines()[-1]:
        pytest.skip(passed.stdout.splitlines()[-2])
