"""No engine is named outside of its own folder: what is asked of one goes through `rlf.engines.engine`."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import rlf
from rlf.spec.engines import ENGINES

ROOT = Path(rlf.__file__).parent
ALLOWED = {
    "apps/demos/trainers.py": ['OPENRLHF = "openrlhf"'],  # a form of files for its supervised trainer
    "core/registry.py": ['("rlf.engines", "openrlhf")'],  # a kind that an app brings
    "spec/engines.py": ['_DEFAULT = "local"'],  # the engine of a spec that names none
    "runs/provenance.py": ['"openrlhf",'],  # a package whose version is recorded, like torch's
    "algo/returns.py": ["(openrlhf/models/utils.py)"],  # where a formula is mirrored from
}
"""Lines, or parts of them, that may name one."""


def test_no_module_outside_of_an_engines_folder_names_it():
    names = [type_.__name__ for type_ in map(ENGINES.get, ENGINES.names()) if type_.__name__ != "Local"]
    classes = "|".join([*names, "OpenRlhf[A-Z]\\w*", "Local(Engine|Run)\\w*"])
    kinds = "|".join(ENGINES.names())
    pattern = re.compile(
        rf"\b({classes})\b|\bopenrlhf\b|engines\.({kinds})\b|engine(: | | = |\.kind=)[`\"']?({kinds})\b|"
        rf"kind[:=] ?[`\"']?({kinds})\b|[\"']({kinds})[\"']|\b({kinds}) engine\b"
    )
    own = {Path(inspect.getfile(ENGINES.get(name))).parent for name in ENGINES.names()}
    found = []
    for file in sorted(ROOT.rglob("*.py")):
        if any(folder in file.parents for folder in own):
            continue
        allowed = ALLOWED.get(file.relative_to(ROOT).as_posix(), [])
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            if pattern.search(line) and not any(part in line for part in allowed):
                found.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()}")
    assert found == []
