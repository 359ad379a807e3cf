"""Whether a service takes the key of a declaration, asked before the first call needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rlf.core import RlfError
from rlf.endpoints import EndpointFailure
from rlf.endpoints.credentials import describe_credentials
from rlf.endpoints.http import HttpClient, HttpRequest

if TYPE_CHECKING:
    from rlf.tools.kinds.http import HttpTool

_PROBE_S: Final = 5.0
_UNAUTHORIZED: Final = 401


async def refuse_wrong_key(tool: HttpTool, client: HttpClient) -> None:
    """Asks for the head of the tool's address with its key, which changes nothing at the service.

    Only 401 is a verdict on the key: 403, 404 and 405 may be one on the method or on what the address leaves out.

    Raises:
        RlfError: the service refuses the key.
    """
    credentials = describe_credentials(tool.headers)
    if not credentials or not tool.has_fixed_host or _UNAUTHORIZED in tool.tool_error_statuses:
        return
    request = HttpRequest("HEAD", tool.url.partition("{")[0], tool.headers)
    try:
        await client.send(request, deadline_s=_PROBE_S)
    except EndpointFailure as failure:
        if failure.status == _UNAUTHORIZED:
            said = f"the service refuses the key: {failure.text}; {credentials}"
            raise RlfError(f"{said}. Set it to one that the service accepts.") from failure
