import gc
import logging
import os
import signal
import socketserver
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from .warm import COMMON, share_session, warm_python

settings.register_profile("rlf", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rlf")
"""How fast a machine makes examples says nothing of rlf."""

socketserver.TCPServer.request_queue_size = 128
"""Of the servers on threads: with the five that are usual, the sixth client at once waits a second to try again."""

os.environ["OMP_NUM_THREADS"] = "1"
"""Of torch, here and in every process that a test starts: small models are slower on several threads, several workers'
threads wait for each other's cores, and how a sum is split decides its last bits."""

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
"""Bytecode is kept: tests start hundreds of processes, some in environments whose packages come without any."""

os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
"""As in an environment that is activated."""

share_session()

LONG = (
    *("tests/apps/openrlhf/test_rehearsal.py", "tests/apps/openrlhf/test_cluster.py", "tests/apps/mcp/"),
    "tests/apps/openrlhf/test_imitation.py",
    *("tests/runs/test_judge_serve.py", "tests/apps/chaos/test_plans.py", "tests/apps/chaos/test_chaos.py"),
    *("tests/tools/test_mcp_liveness.py", "tests/apps/serve/agents/test_guide.py"),
)
"""Files of tests of ten seconds and more, at the beginning of their ids."""

RUNS = str(Path(__file__).parents[1] / "runs") + "/"


def _keep_out(event, arguments):
    """What a checkout's user has run decides no test, and no test adds to it."""
    if event in ("open", "sqlite3.connect", "os.mkdir") and isinstance(arguments[0], str):
        if event == "open" and "/" not in arguments[0]:  # of a folder that is removed, by its descriptor
            return
        path = os.path.abspath(arguments[0].removeprefix("file:"))  # noqa: PTH100 - hundreds of thousands of calls
        assert not path.startswith(RUNS), f"a test reads or writes what is the user's own: {path}"


sys.addaudithook(_keep_out)

gc.disable()
"""While the tests are collected; what was imported and collected by then is looked through no more."""


def pytest_configure(config):
    """Workers are forked from a process that has imported what most of them need, but where lines are counted; and the
    tests too, where all are asked for.
    """
    if getattr(config.option, "tx", None) and not getattr(config.option, "cov_source", None):
        python = warm_python(*COMMON)
        if config.args_source is config.ArgsSource.TESTPATHS:
            python = warm_python("tests.collected", python=python)
        config.option.tx = [f"popen//python={python}" for _ in config.option.tx]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Each worker begins with some of the tests that take longest, so that none is left alone with one at the end."""
    num_workers = getattr(config, "workerinput", {}).get("workercount", 1)
    long = [item for item in items if item.nodeid.startswith(LONG)]
    rest = [item for item in items if not item.nodeid.startswith(LONG)]
    if num_workers == 1 or len(long) < num_workers:
        return
    # A file's tests follow each other: two Rays that start at once on a busy machine are late for each other.
    places = {item: next(at for at, begin in enumerate(LONG) if item.nodeid.startswith(begin)) for item in long}
    first = [[item for item in long if places[item] % num_workers == number] for number in range(num_workers)]
    ends = [len(items) * number // num_workers for number in range(num_workers + 1)]
    items[:] = []
    for tests, end in zip(first, ends[1:], strict=True):
        items += tests
        size = end - len(items)
        items += rest[:size]
        del rest[:size]


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


def pytest_runtest_setup():
    logging.getLogger("rlf").propagate = True  # a command in this process turns it off, and `caplog` then sees nothing


@pytest.fixture
def own_lists(tmp_path, monkeypatch):
    """Lists of MCP servers are kept in the test's folder, and none is known when it begins."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("rlf.tools.mcp.listing._READ", {})


@pytest.fixture(autouse=True, scope="session")
def _interruptible():
    """Ctrl-C works in the tests also where they were started in the background, which has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
