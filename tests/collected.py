"""Imports all modules of tests as pytest does, once for all of its workers: they are forked from what has them."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from contextlib import suppress
from pathlib import Path

from _pytest.config import _prepareconfig
from _pytest.pathlib import import_path

ROOT = Path(__file__).parents[1]


def _import_all() -> None:
    """What cannot be imported, is skipped as a whole or opens a port is left to the workers."""
    config = _prepareconfig(["--rootdir", str(ROOT), "--capture=no", str(ROOT / "tests")])
    config._do_configure()  # markers are known from then on
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        known, num_open = set(sys.modules), _num_open()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with suppress(BaseException):  # what skips a module is no Exception
                import_path(path, mode="importlib", root=ROOT, consider_namespace_packages=False)
                if _num_open() == num_open:
                    continue
            warnings.simplefilter("ignore")
            for name in {name for name in sys.modules if name.startswith("tests.")} - known:
                del sys.modules[name]
            gc.collect()
    config._ensure_unconfigure()
    from hypothesis.internal.conjecture.providers import _get_local_constants  # pytest rewrites it: not before pytest

    with warnings.catch_warnings(action="ignore"):  # of its being early
        _get_local_constants()  # which each worker would read from all of these files for itself


def _num_open() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a thousand times


_import_all()
