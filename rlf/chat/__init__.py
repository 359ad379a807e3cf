"""Render and parse of each model family's chat format, token-exact; one file per format under `formats/`.

No tool is run here and no model is loaded: text and tokens in, text and tokens out. The names below are loaded when
they are first asked for: a spec knows formats by name.
"""

from typing import TYPE_CHECKING

from rlf.core.registry import lazily

if TYPE_CHECKING:
    from rlf.chat.encoding import encode_data, encode_template
    from rlf.chat.format import FORMATS, ChatFormat, detect_format
    from rlf.chat.marks import ParsedTurn

__all__ = ["FORMATS", "ChatFormat", "ParsedTurn", "detect_format", "encode_data", "encode_template"]

__getattr__ = lazily(
    __name__,
    dict.fromkeys(("encode_data", "encode_template"), "encoding")
    | dict.fromkeys(("FORMATS", "ChatFormat", "detect_format"), "format")
    | {"ParsedTurn": "marks"},
)
