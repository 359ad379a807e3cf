"""Builds the site of these pages in build/site: `make docs`. The site makes no request to another host.

A code block that is a file starts with "```yaml specs/first.yaml" in a page, and has the path as its title in the site.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
BUILD = ROOT / "build"
LINKED = ("specs", "tool_specs", "reward_specs", "rlf/sandbox")
"""Folders beside docs/ that pages link to; beside the site they keep the links."""
NAMED_BLOCK = re.compile(r"^```(\w+) (\S+)$", re.MULTILINE)
REMOTE_SCRIPT = "https://unpkg.com/iframe-worker/shim"
LOCAL_SCRIPT = "assets/iframe-worker.js"


def copy_pages(folder: Path) -> None:
    """Copy pages and assets, with the names of code blocks as the generator reads them."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for page in folder.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        page.write_text(NAMED_BLOCK.sub(r'```\1 title="\2"', text), encoding="utf-8")


def use_local_script(site: Path) -> None:
    """Replace the one script of another host by the copy that ships."""
    for page in site.rglob("*.html"):
        depth = len(page.relative_to(site).parts) - 1
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace(REMOTE_SCRIPT, "../" * depth + LOCAL_SCRIPT), encoding="utf-8")


if __name__ == "__main__":
    copy_pages(BUILD / "docs")
    zensical = Path(sys.executable).parent / "zensical"
    subprocess.run([zensical, "build", "--clean"], cwd=ROOT, check=True)
    use_local_script(BUILD / "site")
    for linked in LINKED:
        shutil.copytree(ROOT / linked, BUILD / linked, dirs_exist_ok=True)
