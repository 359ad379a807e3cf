"""The guide's examples are specs that load and code that runs."""

import re
from pathlib import Path

import pytest

from rlf.runs.plans import check_spec
from rlf.types import RepairKind

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "chat.md").read_text()
EXAMPLES = re.findall(r"```(yaml|python)\n(.*?)```", GUIDE, re.DOTALL)


@pytest.mark.parametrize("example", [text for kind, text in EXAMPLES if kind == "yaml"])
def test_each_spec_of_the_guide_is_right(example, tmp_path):
    file = tmp_path / "laid_over.yaml"
    file.write_text(example.replace("../reward_specs", str(ROOT / "reward_specs")))
    assert check_spec([ROOT / "specs" / "search.yaml", file], [])


@pytest.mark.parametrize("example", [text for kind, text in EXAMPLES if kind == "python"])
def test_the_code_of_the_guide_runs(example):
    exec(compile(example, "chat.md", "exec"), {})


def test_every_repair_is_reported():
    said = " ".join(GUIDE[GUIDE.index("## Repair") : GUIDE.index("## Stopping")].split())
    words = {"raw newline": "raw line breaks", "string arguments": "arguments as a JSON string"}
    for kind in RepairKind:
        assert words.get(kind.replace("_", " "), kind.replace("_", " ")) in said
