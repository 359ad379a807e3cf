"""Which addresses the model's arguments may lead to."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Any

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from rlf.endpoints.guard import AddressGuard, BlockedAddress, GuardedResolver, is_public, trusted_hosts
from rlf.endpoints.http import HttpClient, HttpRequest
from rlf.endpoints.spec import EndpointFailure
from rlf.types import Outcome
from tests.endpoints.servers import serving

PRIVATE = [
    "127.0.0.1", "127.255.0.9", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
    "224.0.0.1", "255.255.255.255", "198.18.0.1", "::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2002:a9fe:a9fe::",
]  # fmt: skip
PUBLIC = ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_of_the_public_network_is_reported(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


class Names(AbstractResolver):
    """Answers each look-up with the next of some addresses."""

    def __init__(self, *addresses: str) -> None:
        self._addresses = list(addresses)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        address = self._addresses.pop(0) if len(self._addresses) > 1 else self._addresses[0]
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return [ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)]

    async def close(self) -> None:
        pass


async def get(url: str, declared: str, **settings: Any) -> bytes:
    client = HttpClient(AddressGuard(trusted_hosts(declared)), max_connections=2, max_bytes=1000, **settings)
    try:
        return (await client.send(HttpRequest("GET", url), deadline_s=5)).body
    finally:
        await client.close()


FORMS = [
    "127.0.0.1", "localhost", "LOCALHOST.", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0", "0.0.0.0",
    "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "user@127.0.0.1", "①②⑦.0.0.1",
]  # fmt: skip


@pytest.mark.parametrize("host", FORMS)
def test_a_private_address_in_any_form_is_never_connected_to(host: str) -> None:
    asked = []

    async def count(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response()

    async def main() -> None:
        async with serving(_=count) as url:
            port = url.rpartition(":")[2]
            with pytest.raises(EndpointFailure) as caught:
                await get(f"http://{host}:{port}/", "http://example.org")
        assert caught.value.outcome is Outcome.TOOL_ERROR

    asyncio.run(main())
    assert asked == []


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1", "::1", "169.254.169.254"])
def test_a_name_that_stands_for_a_private_address_is_blocked_at_connect(address: str) -> None:
    async def main() -> None:
        with pytest.raises(EndpointFailure) as caught:
            await get("http://innocent.example/", "http://example.org", resolver=Names(address))
        assert caught.value.outcome is Outcome.TOOL_ERROR
        assert (
            caught.value.text == "the host innocent.example lies at a private address, which this tool may not access"
        )

    asyncio.run(main())


def test_each_look_up_of_a_name_is_judged_anew() -> None:
    """A public answer first and a private one at the next look-up, which is the one that is connected to."""

    async def main() -> None:
        resolver = GuardedResolver(AddressGuard(frozenset()), Names("8.8.8.8", "127.0.0.1"))
        assert [found["host"] for found in await resolver.resolve("rebind.example", 80)] == ["8.8.8.8"]
        with pytest.raises(BlockedAddress):
            await resolver.resolve("rebind.example", 80)

    asyncio.run(main())


def test_of_several_addresses_the_public_ones_alone_are_left() -> None:
    guard = AddressGuard(frozenset())
    assert guard.allowed("mixed.example", 80, ["10.0.0.1", "8.8.8.8", "fe80::1%eth0"]) == ["8.8.8.8"]
    assert guard.allowed("unknown.example", 80, []) == []


def test_the_declared_host_may_be_private_on_its_own_port_only() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="here")

    async def main() -> None:
        async with serving(_=answer) as url, serving(_=answer) as other:
            assert await get(f"{url}/a", url) == b"here"
            by_name = url.replace("127.0.0.1", "localhost")
            assert await get(f"{by_name}/a", by_name) == b"here"
            with pytest.raises(EndpointFailure):
                await get(f"{other}/a", url)

    asyncio.run(main())


def test_a_host_is_named_with_or_without_its_port() -> None:
    assert trusted_hosts("https://Example.org/x") == {("example.org", 443)}
    assert trusted_hosts("", ["files", "db:5432", "[::1]:80"]) == {
        ("files", 80), ("files", 443), ("db", 5432), ("::1", 80)
    }  # fmt: skip


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://example.org/", "gopher://x", "//x", "", "http://", "http://a b/"]
)
def test_what_is_no_web_address_is_refused(url: str) -> None:
    async def main() -> None:
        with pytest.raises(EndpointFailure) as caught:
            await get(url, "http://example.org")
        assert caught.value.outcome is Outcome.TOOL_ERROR

    asyncio.run(main())
