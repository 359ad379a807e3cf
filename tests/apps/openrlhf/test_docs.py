"""The guides' examples are right."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from rlf.apps.openrlhf.checks import PINS
from rlf.cli.arguments import split_arguments
from rlf.runs.planning import report_plan
from rlf.runs.plans import check_spec

DOCS = Path(__file__).parents[3] / "docs"
GUIDES = [DOCS / f"guides/{name}.md" for name in ("openrlhf", "lora", "images", "cluster", "rehearse")]
BLOCK = re.compile(r"^```(?P<language>\w+)(?: (?P<name>\S+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [found.groupdict() for guide in GUIDES for found in BLOCK.finditer(guide.read_text(encoding="utf-8"))]
NAMED = sorted({block["name"] for block in BLOCKS if (block["name"] or "").startswith("specs/")})


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The guides' files, in the current folder."""
    monkeypatch.chdir(tmp_path)
    for block in BLOCKS:
        if block["name"]:
            path = tmp_path / block["name"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block["text"], encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", NAMED)
def test_an_example_has_no_faults_and_warns_at_most_of_a_model_that_is_not_here_or_not_on_a_clusters_nodes(
    name, project
):
    checked = check_spec([project / name], [])
    spec = checked.plan.spec
    elsewhere = spec.engine.ray_address is not None or not spec.model.path.startswith("builtin:")
    warned = [warning.path for warning in checked.warnings if warning.path != "train.prompts_per_step"]
    assert warned == ["model.path"] * elsewhere  # the guides show a row or two


def test_the_commands_for_plans_work(project):
    lines = [line for block in BLOCKS if block["language"] == "console" for line in block["text"].splitlines()]
    plans = [shlex.split(line)[2:] for line in lines if line.startswith("rlf plan ")]
    assert plans
    for words in plans:
        files, overrides = split_arguments([word for word in words if word not in ("--gpu", "24GB")])
        report = report_plan(files, overrides, gpu="24GB", runs_folder=project / "runs")
        assert report.fit is not None and report.fit.fits


def test_a_file_of_several_guides_is_the_same_in_each():
    texts: dict[str, set[str]] = {}
    for block in BLOCKS:
        if block["name"]:
            texts.setdefault(block["name"], set()).add(block["text"])
    assert {name for name, found in texts.items() if len(found) > 1} == set()


def test_the_guide_on_images_names_what_people_search_for():
    text = (DOCS / "guides/images.md").read_text(encoding="utf-8")
    assert all(word in text for word in ("vision-language model", "VLM", "multimodal"))


def test_the_examples_for_clusters_name_the_versions_that_jobs_are_written_for():
    """Their own parsers were asked by hand: shellcheck, SkyPilot, the schema of KubeRay's resource."""
    folder = DOCS / "cluster"
    ray_cluster = yaml.safe_load((folder / "kuberay.yaml").read_text())
    assert ray_cluster["spec"]["rayVersion"] == PINS["ray"]
    assert yaml.safe_load((folder / "skypilot.yaml").read_text())["num_nodes"] == 2
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["project"]
    (torch,) = [name for name in project["dependencies"] if name.startswith("torch==")]
    assert torch in (folder / "Dockerfile").read_text()
    assert {name: PINS[name] for name in ("vllm", "ray", "deepspeed")} == {
        re.match(r"\w+", text)[0]: text.partition("==")[2]
        for text in project["optional-dependencies"]["openrlhf"]
        if not text.startswith("openrlhf")
    }
    assert subprocess.run(["bash", "-n", folder / "slurm.sbatch"], check=False).returncode == 0


def test_rlf_takes_the_fastapi_that_the_pinned_vllm_takes():
    """Of the metadata of vLLM 0.29.0; pip installs `rlf[openrlhf]` for nobody where the two exclude each other."""
    assert PINS["vllm"] == "0.29.0", "look at the new version's own bound"
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [ours] = [wanted for wanted in map(Requirement, project["dependencies"]) if wanted.name == "fastapi"]
    released = ["0.133.0", "0.133.1", "0.134.0", "0.135.3", "0.136.3"]
    assert list(ours.specifier.filter(released)) == list(SpecifierSet(">=0.133.0,<0.137.0").filter(released))


def test_the_image_of_a_node_has_what_the_makefile_installs_by_the_same_commands():
    """In place of a build, for which no builder is at hand; the file says so."""
    image, makefile = ((DOCS.parent / name).read_text() for name in ("docs/cluster/Dockerfile", "Makefile"))
    assert "No image was built from it" in image
    recipe = makefile.partition("\n.venv/installed: ")[2].partition("\n\n")[0]
    steps = {
        r"\$\(PYTHON\) -m venv": "python3 -m venv",
        r"\$\(PIP\) install --quiet uv": "pip install --no-cache-dir uv",
        r"\$\(call install,-e \.\)": "uv pip install --no-cache --no-build-isolation-package flash-attn '.[openrlhf]'",
        r'python -c "import transformers\.models\.auto\.modeling_auto"': "",
        r"\$\(BUBBLEWRAP\)": " bubblewrap ",
    }
    lines = [line for line in recipe.splitlines()[1:] if not line.strip().startswith("touch")]
    assert len(lines) == len(steps), f"a new step of the Makefile's is in no image: {lines}"
    for line, (step, same) in zip(lines, steps.items(), strict=True):
        found = re.search(step, line)
        assert found and (same or found[0]) in image, line
    copied = {word for line in re.findall(r"^COPY (.*) \S+$", image, re.MULTILINE) for word in line.split()}
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text())["project"]
    assert copied == {"pyproject.toml", project["readme"], "LICENSE", "rlf"}
    assert set(re.findall(r"\.\[(\w+)\]", image)) <= set(project["optional-dependencies"])
