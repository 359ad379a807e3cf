"""The browser code of others is what its manifest names, and little."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import rlf.apps.web

STATIC = Path(rlf.apps.web.__file__).parent / "static"
VENDOR = STATIC / "vendor"
MANIFEST = json.loads((VENDOR / "manifest.json").read_text())


def test_the_files_have_the_hashes_of_the_manifest():
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in VENDOR.glob("*.[cj]s*")}
    found.pop("manifest.json")
    assert found == MANIFEST["files"]


def test_every_package_has_a_version_a_free_licence_and_its_text():
    licences = (VENDOR / "LICENSES.txt").read_text()
    for name, facts in MANIFEST["packages"].items():
        assert facts["license"] in ("MIT", "0BSD", "BSD-2-Clause")
        assert f"{name} {facts['version']}\n" in licences


def test_the_packages_are_those_of_the_lock_file():
    locked = json.loads((Path(rlf.apps.web.__file__).parent / "vendor" / "package-lock.json").read_text())["packages"]
    for name, facts in MANIFEST["packages"].items():
        assert locked[f"node_modules/{name}"]["version"] == facts["version"]


def test_code_of_others_and_our_own_stay_small():
    assert sum(path.stat().st_size for path in VENDOR.glob("*.js")) < 600_000
    assert sum(len(path.read_text().splitlines()) for path in STATIC.glob("*.js")) <= 1500


def test_no_template_holds_scripts_styles_or_handlers_of_its_own():
    for path in (STATIC.parent / "templates").rglob("*.html"):
        text = path.read_text()
        for refused in (" style=", "<style", " onclick=", "javascript:", "|safe", "| safe", "https://"):
            assert refused not in text, path


def test_what_a_wheel_holds_is_every_file_that_the_package_has(monkeypatch):
    from setuptools import Distribution
    from setuptools.config.pyprojecttoml import apply_configuration

    root = Path(rlf.apps.web.__file__).parents[3]
    monkeypatch.chdir(root)
    wheel = Distribution({"script_name": "setup.py"})
    apply_configuration(wheel, "pyproject.toml")
    wheel.include_package_data = False  # that writes beside the sources; what is named is what counts
    command = wheel.get_command_obj("build_py")
    command.ensure_finalized()
    held = {Path(source, name) for _, source, _, names in command.data_files for name in names}
    held |= {Path(file) for _, _, file in command.find_all_modules()}
    there = {path for path in Path("rlf").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert {path.parent for path in there - held} == {Path("rlf/apps/web/vendor")}, (
        "beside what `make vendor` is made from"
    )
