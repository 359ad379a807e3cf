"""What the package may not load."""

from __future__ import annotations

import subprocess
import sys


def test_tools_load_no_heavy_library() -> None:
    code = "import sys, rlf.tools, rlf.tools.kinds.python; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "transformers", "sqlalchemy", "aiohttp", "numpy", "rlf.rewards"} & set(loaded)
