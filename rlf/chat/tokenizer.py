"""The model's tokenizer, which both engines read, and the processor of one that sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlf.core.errors import RlfError, first_line

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def load_tokenizer(path: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder or Hugging Face id. Raises RlfError when there is none."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise RlfError(f"model.path: no tokenizer at {path!r}: {first_line(error)}") from error


def load_processor(path: str) -> Any:
    """The processor of a model that sees, with its tokenizer. Raises RlfError when there is none."""
    from transformers import AutoProcessor

    try:
        return AutoProcessor.from_pretrained(path)  # type: ignore[no-untyped-call]  # transformers leaves it untyped
    except ImportError as error:
        needed = " ".join(str(error).split())
        raise RlfError(
            f"model.path: the processor of {path!r} needs a package that is not here: {needed[:200]}. "
            "Install Pillow, and the torchvision of this torch."
        ) from error
    except (OSError, ValueError) as error:
        raise RlfError(f"model.path: no processor at {path!r}: {first_line(error)}") from error
