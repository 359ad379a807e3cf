"""What a dataset's name says of it: its suffix, and the files that it stands for. Reads no row."""

from __future__ import annotations

from pathlib import Path

DATA_SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")
"""Of files that rows are read from, in the order that messages list them."""
MIXTURE_SUFFIX = ".mix.yaml"
"""Of a file that lists datasets."""
TEMPLATE_SUFFIXES = (".jinja", ".jinja2", ".j2")
"""Of a file that holds a template; any other text is the template itself."""


def mixture_files(path: str) -> list[str]:
    """The paths of the datasets of a mixture; of another dataset, or where it cannot be read, none."""
    file = Path(path)
    if not path.endswith(MIXTURE_SUFFIX) or not file.is_file():
        return []
    from rlf.data.source import read_mixture

    return [one.path for one in read_mixture(file, path)]
