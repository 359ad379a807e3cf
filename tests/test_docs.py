"""Documents are tested: what they show is what is there."""

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlf.cli import app

ROOT = Path(__file__).parents[1]
DOCS = [ROOT / "README.md", ROOT / "AGENTS.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("path", DOCS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(path):
    targets = re.findall(r"\]\((?!http)([^)#]+)", path.read_text())
    missing = [target for target in targets if not (path.parent / target).exists()]
    assert not missing


def test_the_readme_shows_the_shipped_spec_and_tool_as_they_are():
    blocks = re.findall(r"```yaml\n# (\S+)\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert [name for name, _ in blocks] == ["specs/search.yaml", "tool_specs/search.yaml"]
    for name, shown in blocks:
        lines = [line for line in (ROOT / name).read_text().splitlines() if not line.startswith("#")]
        assert shown.strip().splitlines() == lines, name


def test_the_files_to_read_first_are_there_and_about_as_long_as_it_says():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    files = re.findall(r"^\d+\. `(\S+)`: ", text, re.MULTILINE)
    assert "Fourteen files, about 4,000 lines" in text and len(files) == 14
    assert 3_600 <= sum(len((ROOT / file).read_text().splitlines()) for file in files) <= 4_400


@pytest.mark.parametrize("name", ["README.md", "AGENTS.md"])
def test_every_command_that_a_first_page_names_has_help(name):
    named = re.findall(r"(?:`|^    )rlf ([a-z]+(?: [a-z]+)?)", (ROOT / name).read_text(), re.MULTILINE)
    assert named
    for command in sorted(set(named)):
        words = command.split()
        done = CliRunner().invoke(app, [*words, "--help"])
        if done.exit_code and len(words) > 1:  # the second word is an argument
            done = CliRunner().invoke(app, [words[0], "--help"])
        assert done.exit_code == 0 and "Usage" in done.stdout, command


def test_a_benchmark_that_a_page_starts_by_its_file_imports_no_other():
    for name in {name for path in DOCS for name in re.findall(r"python (benchmarks/\w+\.py)", path.read_text())}:
        text = (ROOT / name).read_text()
        of_others = re.search(r"^from (benchmarks|tests)\b", text, re.MULTILINE)
        assert of_others is None or "sys.path.insert" in text, f"{name}: only `python -m` finds what it imports"


def test_what_agents_read_is_one_screen_and_names_files_that_are_there():
    text = (ROOT / "AGENTS.md").read_text()
    assert len(text.splitlines()) <= 50
    named = set(re.findall(r"`((?:docs/[\w/.-]+|\w+\.md))`", text)) - {"tool.md", "reward.md", "env.md"}
    assert named and [name for name in named if not (ROOT / name).exists()] == []


def test_the_readmes_first_screen_has_exactly_the_two_commands():
    first = (ROOT / "README.md").read_text().split("```")[0]
    commands = [line.strip() for line in first.splitlines() if line.startswith("    ")]
    assert [command.split("#")[0].strip() for command in commands] == ["make run", "make test"]


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading.replace("`", "").lower()).strip())


@pytest.mark.parametrize("path", DOCS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_anchor_of_a_link_is_a_heading(path):
    for target, anchor in re.findall(r"\]\((?!http)([^)#]*)#([^)]+)\)", path.read_text(encoding="utf-8")):
        text = (path.parent / target if target else path).read_text(encoding="utf-8")
        text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        headings = {re.sub(r"-+", "-", slug(heading)) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}
        assert re.sub(r"-+", "-", anchor) in headings, f"{target}#{anchor}"


WRITTEN = [path for path in [*DOCS, ROOT / "CHANGELOG.md"] if not path.is_relative_to(ROOT / "docs/reference")]


@pytest.mark.parametrize("path", WRITTEN, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_a_line_of_text_has_at_most_100_characters(path):
    text = re.sub(r"^ *```.*?^ *```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    is_free = re.compile(r"\s*\||\s{4}|\s*<|\s*!\[").match  # tables, code, HTML and images
    assert [line for line in text.splitlines() if len(line) > 100 and not is_free(line)] == []


def test_the_site_has_every_page():
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in DOCS if path.is_relative_to(ROOT / "docs")}
    named = set(re.findall(r"\S+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    assert named == pages


def test_every_page_is_two_clicks_from_the_index():
    def links(page):
        found = re.findall(r"\]\((?!http)([^)#]+\.md)", page.read_text(encoding="utf-8"))
        return {(page.parent / target).resolve() for target in found}

    first = links(ROOT / "docs/index.md")
    reached = first.union(*(links(page) for page in first if page.exists()))
    assert {path for path in DOCS if path.is_relative_to(ROOT / "docs")} - reached - {ROOT / "docs/index.md"} == set()


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    for folder in ("specs", "tool_specs", "reward_specs"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exec(block, {})
    assert "success" in capsys.readouterr().out


def test_the_recording_asks_no_other_host():
    svg = (ROOT / "docs/assets/run.svg").read_text(encoding="utf-8")
    assert "rlf run specs/search.yaml" in svg.replace("&#160;", " ") and "url(http" not in svg and "@import" not in svg


def test_every_entry_of_the_changelog_is_in_a_group_of_its_version():
    for version in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        before, *groups = version.split("\n### ")
        names = [group.split("\n", 1)[0] for group in groups]
        assert "\n- " not in before and names == [name for name in ("Added", "Changed", "Fixed") if name in names]


@pytest.mark.parametrize("path", DOCS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_no_paragraph_has_more_than_120_words(path):
    text = re.sub(r"^ *```.*?^ *```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    parts = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)", text)
    assert [part for part in parts if len(part.split()) > 120 and not part.lstrip().startswith(("|", "<", "#"))] == []
