"""Each message that the troubleshooting page quotes is one that rlf prints."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/guides/troubleshooting.md").read_text(encoding="utf-8")
PARTS = re.findall(r"^## (.+?)\n\n```text\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)
LINES = [(title, line) for title, block in PARTS for line in block.splitlines()]


@cache
def printed() -> tuple[str, ...]:
    """Every text of the code, with `…` for what is put into it."""
    texts = []
    for path in (ROOT / "rlf").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                texts.append("".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return tuple(texts)


@cache
def written() -> str:
    """The code as it stands, without comments and with texts of several lines joined: had in a tenth of the time."""
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "rlf").rglob("*.py"))
    return re.sub(r"['\"]\s*\n\s*f?['\"]", "", re.sub(r"^\s*#.*\n|  # .*$", "", code, flags=re.MULTILINE))


def fragments(line: str) -> list[str]:
    """What stands between two values, and is long enough to be a message's own."""
    return [part.strip(" .;:") for part in line.split("…") if len(part.strip(" .;:")) > 5]


def test_the_page_quotes_messages_for_each_kind_of_trouble():
    assert [title for title, _ in PARTS] == re.findall(r"^## (.+)$", PAGE, re.MULTILINE) and len(PARTS) == 7


@pytest.mark.parametrize(("title", "line"), LINES, ids=[line[:60] for _, line in LINES])
def test_a_quoted_message_is_one_that_rlf_prints(title, line):
    wanted = fragments(line)
    assert wanted
    missing = [part for part in wanted if part not in written()]
    assert [part for part in missing if not any(part in text for text in printed())] == []
