"""Images of a prompt: each placeholder becomes as many tokens as the model's processor makes of its image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ImageReader:
    """The processor of one model."""

    def __init__(self, model: str) -> None:
        from transformers import AutoProcessor

        auto: Any = AutoProcessor
        self._processor = auto.from_pretrained(model)
        self._token_id = int(self._processor.image_token_id)
        self._mark = getattr(self._processor, "boi_token", None) or self._processor.image_token

    def read(self, tokens: Sequence[int], images: Sequence[Any]) -> tuple[list[int], dict[str, Any]]:
        """The tokens that the model sees, and its other inputs.

        Args:
            tokens: with one placeholder for each image, as OpenRLHF hands them over.

        Raises:
            ValueError: there are more or fewer placeholders than images.
        """
        import torch

        if (marks := tokens.count(self._token_id)) != len(images):
            raise ValueError(f"a prompt with {marks} placeholders of images has {len(images)} images")
        read = [self._processor(text=[self._mark], images=[image], return_tensors="pt") for image in images]
        lengths = iter([int((inputs["input_ids"] == self._token_id).sum()) for inputs in read])
        seen = [copy for token in tokens for copy in [token] * (next(lengths) if token == self._token_id else 1)]
        types = (torch.tensor([seen]) == self._token_id).to(torch.int32)
        names = set(read[0]) - {"input_ids", "attention_mask"} if read else set()
        return seen, {
            name: types if name.endswith("token_type_ids") else torch.cat([inputs[name] for inputs in read])
            for name in names
        }
