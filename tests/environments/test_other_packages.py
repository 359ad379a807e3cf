"""Worlds of other packages as they come: each `real_PACKAGE.py` here passes where the package can be imported.

`make .venv/worlds/ready` makes environments that have them, beside rlf's own. Without them these tests skip.
"""

import sys
from pathlib import Path

import pytest

from ..processes import Process

INSTALLED = Path(sys.prefix) / "worlds"


def run_tests(packages, *arguments):
    sys.path.append(packages)
    sys.exit(
        pytest.main(
            ["-q", "-rs", "-n0", "-pno:cacheprovider", "-Wignore::pytest.PytestAssertRewriteWarning", *arguments]
        )
    )


@pytest.mark.parametrize("package", ["text"])
def test_worlds_of_a_package_are_played_as_they_come(package, tmp_path):
    packages = next(INSTALLED.glob(f"{package}/lib/python3.*/site-packages"), None)
    if packages is None:
        pytest.skip(f"{INSTALLED / package} is not there: `make .venv/worlds/ready` installs it")
    file = Path(__file__).with_name(f"real_{package}.py")
    with Process(run_tests, str(packages), str(file), f"--basetemp={tmp_path / 'tests'}") as process:
        printed, faults = process.communicate(timeout=300)
        assert process.wait() == 0, (printed + faults)[-4000:]
    if "skipped" in printed.splitlines()[-1]:
        pytest.skip(printed.splitlines()[-2])
