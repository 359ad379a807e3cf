"""`python long_model.py FOLDER`: `builtin:tiny` with 8,192 positions, for prompts of others' worlds.

Those of tau2's retail domain have 5,600 tokens. Beyond its own 1,024 positions the model has learnt nothing: it shows
that such a world is played and trained in, not that its tasks are learnt.
"""

import json
import shutil
import sys
from pathlib import Path

from rlf.builtin.names import builtin_path

POSITIONS = 8192


def make_model(folder: Path) -> Path:
    shutil.copytree(builtin_path("tiny"), folder, dirs_exist_ok=True)
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"max_position_embeddings": POSITIONS}, indent=2))
    return folder


if __name__ == "__main__":
    make_model(Path(sys.argv[1]))
