"""As much of Ray's command line as a run calls: `start --block` says that it runs, starts a daemon in a session of its
own, and stays.
"""

import time

from ray._private.node import Node


def cli(args):
    assert args[0] == "start", args
    (folder,) = [word.removeprefix("--temp-dir=") for word in args if word.startswith("--temp-dir=")]
    Node(folder)
    print("Ray runtime started.", flush=True)
    time.sleep(600)
