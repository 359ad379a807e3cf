"""Ray's start: its processes, then a loop with a limit of its own, here of a tenth of a second instead of 30."""

import os
import subprocess
import sys
import time
from pathlib import Path

from ray._private import services

_LIMIT_S = 0.1
_PATIENCE = "RAY_agent_register_timeout_ms"


class Node:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.start_ray_processes()
        start = time.monotonic()
        while True:
            try:
                services.get_node("address", "node")
                break
            except RuntimeError:
                pass
            if time.monotonic() - start > _LIMIT_S:
                raise Exception("The current node timed out during startup.")

    def start_ray_processes(self):
        code = "import time; time.sleep(600)  # a daemon"
        if os.environ.get("FAKE_RAYLET") == "dead":
            code = "import sys; sys.exit('\\nno room in /dev/shm\\nraylet/raylet(+0x258107) [0x55d107]\\n')"
        if os.environ.get("FAKE_RAYLET") == "slow" and int(os.environ.get(_PATIENCE, 30_000)) < 300_000:
            code = "import sys; sys.exit('an agent timed out')"
        with (self.folder / "raylet.err").open("w") as log:
            self.raylet = subprocess.Popen([sys.executable, "-c", code], stderr=log, start_new_session=True)

    def dead_processes(self):
        return [("raylet", self.raylet)] if self.raylet.poll() is not None else []

    def get_logs_dir_path(self):
        return str(self.folder)
