"""Pictures in results, held against the limits of their tool."""

from __future__ import annotations

from collections.abc import Sequence

from rlf.core.image_file import read_header
from rlf.tools.failure import ToolFailure
from rlf.tools.limits import Limits
from rlf.types import Image, Outcome


def check_images(images: Sequence[Image], limits: Limits) -> list[str]:
    """A line per image for models that see none. Raises ToolFailure OUTPUT_REJECTED where one breaks the limits."""
    if len(images) > limits.max_images:
        raise _rejected(f"{len(images)} images, more than the {limits.max_images} allowed")
    return [_checked(number, image, limits) for number, image in enumerate(images, 1)]


def _checked(number: int, image: Image, limits: Limits) -> str:
    if len(image.data) > limits.max_image_bytes:
        raise _rejected(f"image {number} of {len(image.data)} bytes, more than the {limits.max_image_bytes} allowed")
    header = read_header(image.data)
    if header is None:
        raise _rejected(f"image {number} that is no PNG, JPEG, GIF or WebP file")
    if header.mime_type != image.mime_type:
        raise _rejected(f"image {number} that says {image.mime_type[:80]} and is {header.mime_type}")
    if header.width * header.height > limits.max_image_pixels:
        size = f"{header.width}x{header.height}"
        raise _rejected(f"image {number} of {size} pixels, more than the {limits.max_image_pixels} allowed")
    return f"[image {number}: {header.mime_type}, {header.width}x{header.height}]"


def _rejected(what: str) -> ToolFailure:
    return ToolFailure(Outcome.OUTPUT_REJECTED, f"the tool returned {what}")
