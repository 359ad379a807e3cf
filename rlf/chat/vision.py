"""Images as a model sees them: the tokens that stand for one, and the tensors that its training takes.

An image is one token repeated, `placeholder`, in a number that the model's own processor decides. Invariant: of what
is rendered, exactly the images' tokens are `placeholder`; data cannot write it, and sampling leaves it out.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rlf.core import RlfError
from rlf.core.errors import first_line

if TYPE_CHECKING:
    import PIL.Image
    import torch


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


MAX_KEPT = 64
"""Images kept ready, some 20 MB each at a megapixel: the rollouts of a group show the same ones, turn after turn."""
_PARTS = ("image", "video", "audio", "vision_start", "vision_end", "boi", "eoi", "boa", "eoa")
"""What processors name `<part>_token_id`: tokens that promise an image or a sound."""
_PROBE_VISION = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAADgAAAA4CAAAAACN7WTCAAAAJUlEQVR42u3LMREAAAgEoNf+nbWC5ww7NfnpiK"
    "IoiqIoiqIoniwyIgFvCyLXLgAAAABJRU5ErkJggg=="
)
"""A white square of 56 x 56 pixels."""
_OF_THE_TEXT = frozenset({"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids"})
"""What a processor returns of the text around an image."""


@dataclass(frozen=True, slots=True)
class PreparedImage:
    """One image, ready for sampling and training."""

    tokens: tuple[int, ...]
    """`Vision.placeholder`, once for each place that the image takes in the context."""
    image: PIL.Image.Image
    tensors: Mapping[str, torch.Tensor]
    """`pixel_values` and what else the model's forward takes; several images are joined along the first axis."""


class Vision:
    """A model's processor. One per process: what it has made of an image is kept for a while."""

    def __init__(self, processor: Any) -> None:
        """Reads what the processor calls an image, and has it make one.

        Args:
            processor: transformers' own of the model.

        Raises:
            RlfError: it is of no model that sees, or of one that writes an image as more than one token, repeated.
        """
        self._processor = processor
        placeholder = getattr(processor, "image_token_id", None)
        if not isinstance(placeholder, int) or not hasattr(processor, "image_processor"):
            raise RlfError("model.path: the model has no processor of images. Use a vision-language model (VLM).")
        self.placeholder = placeholder
        named = [getattr(processor, f"{part}_token_id", None) for part in _PARTS]
        self.never_sampled = tuple(sorted({token for token in named if isinstance(token, int)}))
        """Tokens that a policy that sees may not sample, since the model would look for an image behind them."""
        self._thread = ThreadPoolExecutor(1, "rlf-vision")
        self.prepare_image = lru_cache(MAX_KEPT)(self._process_image)
        """The image behind a reference. Raises RlfError where it cannot be read."""
        self._process_image(_PROBE_VISION)

    async def prepare(self, references: Sequence[str]) -> None:
        """Makes images ready off the event loop. Raises RlfError for one that cannot be read."""
        loop = asyncio.get_running_loop()
        for reference in references:
            await loop.run_in_executor(self._thread, self.prepare_image, reference)

    def tensors(self, references: Sequence[str]) -> dict[str, torch.Tensor] | None:
        """The inputs that training takes for the images of a trajectory; None without any."""
        import torch

        if not references:
            return None
        each = [self.prepare_image(reference).tensors for reference in references]
        return {name: torch.cat([tensors[name] for tensors in each]) for name in each[0]}

    def collapsed(self, tokens: Sequence[int]) -> list[int]:
        """Tokens with one place for each image, for a person."""
        before = (None, *tokens)
        return [token for last, token in zip(before, tokens, strict=False) if not last == token == self.placeholder]

    def _process_image(self, reference: str) -> PreparedImage:
        from PIL import Image as Pillow

        from rlf.core.images import read_image_file, shown_reference

        shown = shown_reference(reference)
        try:
            image = Pillow.open(io.BytesIO(read_image_file(reference).data)).convert("RGB")
            text = self._processor.tokenizer.convert_ids_to_tokens(self.placeholder)
            made = self._processor(text=[text], images=[image], add_special_tokens=False, return_tensors="pt")
        except (OSError, ValueError, Pillow.DecompressionBombError) as error:
            raise RlfError(f"{shown}: the model's processor cannot take the image: {error}. Convert it.") from error
        tokens = tuple(made["input_ids"][0].tolist())
        if set(tokens) != {self.placeholder}:
            raise RlfError(
                f"model.path: next to {text!r} the model's processor makes other tokens of an image; OpenRLHF and vLLM "
                "count the images of a trajectory by that token alone. Use e.g. a model of the Qwen-VL family."
            )
        return PreparedImage(tokens, image, {name: value for name, value in made.items() if name not in _OF_THE_TEXT})
