"""URIs and results of an MCP server's calls, from the SDK's types to rlf's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import mcp_types as mcp

from rlf.core.files import decode_base64, image_type
from rlf.tools.results import ToolFailure
from rlf.types import Image, Outcome, ToolOutput

# RFC 6570: an operator, then names separated by commas.
_VARIABLE = re.compile(r"\{([+#./;?&]?)([^{}]+)\}")
_IN_PATH = frozenset({"", "+", "/"})
"""Operators that make parts of a path."""
_LEFT_OUT: Any = object()


def variables(template: str) -> list[str]:
    """Names within the braces of a URI template, in their order."""
    found = [name.split(":")[0].rstrip("*") for _, names in _VARIABLE.findall(template) for name in names.split(",")]
    return list(dict.fromkeys(found))


def expand(template: str, arguments: Mapping[str, Any]) -> str:
    """The URI with the variables filled in; `{+name}` keeps slashes and the like, others are escaped.

    Raises:
        ToolFailure: INVALID_ARGUMENTS, where an argument that is given makes an empty part of the path.
    """

    def fill(match: re.Match[str]) -> str:
        operator, names = match.groups()
        keep = "/:?#[]@!$&'()*+,;=" if operator in ("+", "#") else ""
        given = [arguments.get(name.split(":")[0].rstrip("*"), _LEFT_OUT) for name in names.split(",")]
        if operator in _IN_PATH and any(value in (None, "", [], {}) for value in given):
            text = f"the arguments make no address: {{{names}}} of the resource would be empty"
            raise ToolFailure(Outcome.INVALID_ARGUMENTS, text)
        values = ["" if value is None or value is _LEFT_OUT else quote(str(value), safe=keep) for value in given]
        return ("" if operator == "+" else operator) + ",".join(values)

    return _VARIABLE.sub(fill, template)


def output_of_call(result: mcp.CallToolResult) -> ToolOutput:
    """A tool's output: text parts one under the other, images beside them."""
    texts, images = _split_content(result.content)
    structured = result.structured_content
    if not texts and structured is not None:
        texts = [json.dumps(structured, ensure_ascii=False)]
    if not texts and result.is_error:
        texts = ["the tool failed and does not say why"]
    return ToolOutput("\n".join(texts), tuple(images), structured, bool(result.is_error))


def output_of_resource(result: mcp.ReadResourceResult) -> ToolOutput:
    """A resource's content."""
    texts: list[str] = []
    images: list[Image] = []
    for contents in result.contents:
        _add_contents(contents, texts, images)
    return ToolOutput("\n".join(texts), tuple(images))


def _split_content(content: Sequence[mcp.ContentBlock]) -> tuple[list[str], list[Image]]:
    texts: list[str] = []
    images: list[Image] = []
    for block in content:
        if isinstance(block, mcp.TextContent):
            texts.append(block.text)
        elif isinstance(block, mcp.ImageContent):
            images.append(Image(_decode_base64(block.data), block.mime_type))
        elif isinstance(block, mcp.EmbeddedResource):
            _add_contents(block.resource, texts, images)
        else:
            texts.extend(_describe_block(block))
    return texts, images


def _add_contents(
    contents: mcp.TextResourceContents | mcp.BlobResourceContents, texts: list[str], images: list[Image]
) -> None:
    if isinstance(contents, mcp.TextResourceContents):
        texts.append(contents.text)
        return
    data, mime_type = _decode_base64(contents.blob), contents.mime_type or "application/octet-stream"
    if image_type(mime_type).startswith("image/"):
        images.append(Image(data, mime_type))
    else:
        texts.append(f"[{contents.uri}: {mime_type}, {len(data)} bytes]")


def _describe_block(block: mcp.AudioContent | mcp.ResourceLink) -> Iterator[str]:
    if isinstance(block, mcp.ResourceLink):
        yield f"[{block.title or block.name}: {block.uri}]"
    else:
        yield f"[{block.mime_type}: {len(_decode_base64(block.data))} bytes]"


def _decode_base64(text: str) -> bytes:
    try:
        return decode_base64(text)
    except ValueError as fault:
        raise ToolFailure(Outcome.SERVICE_ERROR, f"the result holds invalid base64: {fault}") from fault
