"""The question that Ray's start repeats until its raylet has reported. FAKE_RAYLET: `slow`, or `dead`."""

import os
import time

began = time.monotonic()


def get_node(address, node_id):
    what = os.environ.get("FAKE_RAYLET")
    if what == "dead" or (what == "slow" and time.monotonic() - began < 1.0):
        raise RuntimeError("no node")
    return {}
