"""Names that packing and ring attention import of flash attention: importable, and not there.

OpenRLHF imports them when it is loaded, and calls them only with packing or ring attention. One module stands under all
names of the package: Python takes what a parent has put into `sys.modules` while it was imported.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

__version__ = "0"


def _absent(*_args: Any, **_kwargs: Any) -> NoReturn:
    raise NotImplementedError("packing and ring attention need flash attention, which needs a GPU")


index_first_axis = pad_input = rearrange = unpad_input = all_gather = _absent
for _name in ("bert_padding", "utils", "utils.distributed"):
    sys.modules[f"{__name__}.{_name}"] = sys.modules[__name__]
