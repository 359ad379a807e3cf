"""Images as servers and files hold them."""

from __future__ import annotations

import base64

import mcp_types as mcp
import pytest

from rlf.apps.servers.runtime import output_of_call
from rlf.core.images import decode_base64, read_image_file
from rlf.endpoints.openai import read_images
from rlf.endpoints.spec import Usage
from rlf.tools.results import ToolFailure
from rlf.types import Image, Outcome

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x03\x08\x02" + bytes(range(255))
PLAIN = base64.b64encode(PNG).decode()
WAYS = {
    "plain": PLAIN,
    "mime": base64.encodebytes(PNG).decode(),
    "crlf": base64.encodebytes(PNG).decode().replace("\n", "\r\n"),
    "url": base64.urlsafe_b64encode(PNG).decode(),
    "bare": PLAIN.rstrip("="),
    "spaced": f"  {PLAIN[:9]} {PLAIN[9:]}\t",
}


@pytest.mark.parametrize("way", WAYS)
def test_base64_is_read_in_every_way_that_it_is_written(way: str) -> None:
    assert "+" in PLAIN and "/" in PLAIN and PLAIN.endswith("=")
    assert decode_base64(WAYS[way]) == PNG
    image = Image(PNG, "image/png")
    for item in ({"b64_json": WAYS[way]}, {"url": f"data:image/png;base64,{WAYS[way]}"}):
        assert read_images({"data": [item]}, Usage())[0] == [image]
    assert read_image_file(f"data:image/png;base64,{WAYS[way]}").data == PNG
    block = mcp.ImageContent(type="image", data=WAYS[way], mime_type="image/png")
    assert output_of_call(mcp.CallToolResult(content=[block])).images == (image,)


@pytest.mark.parametrize("text", ["a", "ab!d", "é", "abcd=efgh", "\ud800"])
def test_what_is_no_base64_is_the_services_failure(text: str) -> None:
    with pytest.raises(ValueError):
        decode_base64(text)
    with pytest.raises(ToolFailure) as caught:
        output_of_call(mcp.CallToolResult(content=[mcp.ImageContent(type="image", data=text, mime_type="image/png")]))
    assert caught.value.outcome is Outcome.SERVICE_ERROR
