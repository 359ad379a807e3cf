"""What the source says of a callable is what its import says."""

import inspect

import pytest

from rlf.core import RlfError
from rlf.core.callables import load_callable, load_module
from rlf.core.definitions import find_definition
from rlf.tools.python.description import describe_function

SOURCE = '''
import functools
from typing import Any, Literal, Optional

LIMIT = 3

def plain(query: str, most: int = 5, *, tags: list[str] | None = None, kind: Literal["a", "b"] = "a") -> str:
    """Finds.

    Args:
        query: what to find.
    """

async def waits(values: dict[str, float], anything: Any, maybe: Optional[int] = None): ...

def open_default(query: str, most: int = LIMIT): ...

class Tool:
    """A tool."""
    def __call__(self, query: str) -> str:
        return query

@functools.lru_cache
def decorated(query): ...

made = functools.partial(plain, most=2)
'''


@pytest.fixture
def module(tmp_path):
    (tmp_path / "things.py").write_text(SOURCE)
    return f"{tmp_path}/things.py"


@pytest.mark.parametrize("name", ["plain", "waits"])
def test_a_definition_describes_itself_as_the_function_does(module, name):
    found = find_definition(f"{module}:{name}")
    assert found is not None
    assert found.complete
    function = load_callable(f"{module}:{name}")
    assert describe_function(found.stub, name) == describe_function(function, name)
    assert inspect.iscoroutinefunction(found.stub) == inspect.iscoroutinefunction(function)


def test_a_class_is_a_class_with_its_call(module):
    found = find_definition(f"{module}:Tool")
    assert found is not None
    assert inspect.isclass(found.stub)
    assert list(inspect.signature(found.stub.__call__).parameters) == ["self", "query"]


def test_what_the_source_leaves_open_is_unknown(module):
    assert find_definition(f"{module}:decorated") is None
    assert find_definition(f"{module}:made") is None
    assert find_definition("no_such_package.things:f") is None
    found = find_definition(f"{module}:open_default")
    assert found is not None
    assert not found.complete


def test_a_name_that_is_not_there_is_a_fault(module, tmp_path):
    with pytest.raises(RlfError, match="has no 'plan'; did you mean 'plain'"):
        find_definition(f"{module}:plan")
    with pytest.raises(RlfError, match="no file"):
        find_definition(f"{tmp_path}/nothing.py:f")
    (tmp_path / "broken.py").write_text("def f(:\n")
    with pytest.raises(RlfError, match="SyntaxError"):
        find_definition(f"{tmp_path}/broken.py:f")
    (tmp_path / "made.py").write_text("globals()['f'] = print\n")
    assert find_definition(f"{tmp_path}/made.py:f") is None


def test_a_folder_is_no_module():
    with pytest.raises(RlfError, match=r"cannot import '\.\./tools': expected `package.module`, or a file"):
        load_module("../tools")


def test_a_module_below_folders_without_init_is_found_before_any_of_them_is_imported(tmp_path, monkeypatch):
    (tmp_path / "outermost" / "middle").mkdir(parents=True)
    (tmp_path / "outermost" / "middle" / "things.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    found = find_definition("outermost.middle.things:plain")
    assert found is not None and found.complete
    assert find_definition("outermost.middle.none:plain") is None
