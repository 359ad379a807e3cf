"""Messages, help, pages and docstrings use the words of the glossary."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def load_generator():
    """`docs/generate.py` as a module."""
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs/generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = load_generator()
NEVER = {pattern: term["write"] for term in GENERATOR.read_glossary() for pattern in term.get("never", [])}
REFUSED = re.compile("|".join(rf"\b{pattern}(?!\w)" for pattern in NEVER), re.IGNORECASE)
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
MODULES = sorted((ROOT / "rlf").rglob("*.py"))


def read_sentences(module: Path):
    """Yield line and text of each string that a reader may see: messages, first lines of docstrings, help.

    Most modules hold no refused word at all, whatever it is part of: those are not parsed.
    """
    code = module.read_text(encoding="utf-8")
    if not REFUSED.search(re.sub(r"['\"]\s*\n\s*f?['\"]", "", code)):
        return
    tree = ast.parse(code)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None
    }
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    is_help = module.is_relative_to(ROOT / "rlf/cli")
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        text = node.value.strip()
        if id(node) in docstrings and not is_help:
            text = text.splitlines()[0] if text else ""
        if " " in text or id(node) in parts:
            yield node.lineno, text


# Sentences of other programs that rlf repeats, and words that built-in models know.
QUOTED = (
    "At most 0 image(s) may be provided",
    "Tell me the {c} of {k}.",
    "much give tell me find",
    "Look Get Tell Halve",
    "read look tell ask",
)


def find_refused(text: str) -> list[str]:
    for quoted in QUOTED:
        text = text.replace(quoted, "")
    return [found.group() for found in REFUSED.finditer(text)]


def name_place(path: Path) -> str:
    """The package of a module, or the page itself."""
    relative = path.relative_to(ROOT)
    return "/".join(relative.parts[:2]) if relative.parts[0] == "rlf" else relative.as_posix()


def find_all_refused(path: Path) -> list[str]:
    lines = (
        enumerate(path.read_text(encoding="utf-8").splitlines(), 1) if path.suffix == ".md" else read_sentences(path)
    )
    return [f"{path.relative_to(ROOT)}:{line}: {word}" for line, text in lines for word in find_refused(text)]


PLACES = sorted({name_place(path) for path in [*PAGES, *MODULES]})


@pytest.mark.parametrize("place", PLACES)
def test_no_sentence_uses_a_refused_word(place):
    assert [found for path in [*PAGES, *MODULES] if name_place(path) == place for found in find_all_refused(path)] == []


@pytest.mark.parametrize("name", GENERATOR.PAGES)
def test_the_committed_page_is_current(name):
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == GENERATOR.PAGES[name](), "run `make reference`"


def test_a_term_is_explained_once():
    terms = [term["write"] for term in GENERATOR.read_glossary()]
    assert len(terms) == len(set(terms)) >= 60


def test_a_term_has_no_other_keys():
    assert {key for term in GENERATOR.read_glossary() for key in term} == {"write", "means", "never"}
