"""Every command of the pages is run, in order and as it stands, or says what it needs that no test has."""

import resource
from pathlib import Path

import pytest

from .pages import GIVEN, MISSING, PAGES, REHEARSALS, ROOT, commands_of, run_page, why_not

CHEAP = {
    "docs/guides/cluster.md",
    "docs/guides/openrlhf.md",
    "docs/guides/tools.md",
    "docs/tutorials/from-other-libraries.md",
    "docs/tutorials/mcp.md",
}
"""Pages of at most five CPU seconds, which train nothing."""
WITH_COMMANDS = [page for page in PAGES if any(commands_of(page.read_text(encoding="utf-8")))]


def of(page: Path):
    name = page.relative_to(ROOT).as_posix()
    return pytest.param(page, id=name, marks=() if name in CHEAP else pytest.mark.docs)


@pytest.mark.parametrize("page", [of(page) for page in WITH_COMMANDS])
def test_the_commands_of_a_page_run_in_order_as_they_stand(page, tmp_path):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = list(run_page(page, tmp_path))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{page.relative_to(ROOT)}: {len(ended)} commands, {seconds:.0f} CPU seconds")
    assert [line for line, failure in ended if failure] == [], "\n".join(f"{line}\n{why}" for line, why in ended if why)


def test_what_is_not_run_has_a_reason():
    needs = {why_not(line) for page in PAGES for line in commands_of(page.read_text(encoding="utf-8"))}
    assert needs - {"", "stays open", *REHEARSALS} == MISSING.keys() | GIVEN.keys()
