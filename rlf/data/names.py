"""What the suffix of a file says it is."""

from __future__ import annotations

DATA_SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")
"""Of files that rows are read from, in the order that messages list them."""
MIXTURE_SUFFIX = ".mix.yaml"
"""Of a file that lists datasets."""
TEMPLATE_SUFFIXES = (".jinja", ".jinja2", ".j2")
"""Of a file that holds a template; any other text is the template itself."""
