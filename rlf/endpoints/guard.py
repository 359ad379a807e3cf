"""Which hosts a request may reach: the one that the declaration names, others only at public addresses.

Names are judged by the addresses that the connection is then made to, so that a name which changes its address
between two look-ups, or one that stands for an address in another form, gains nothing.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import TypeAlias

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver
from yarl import URL

_Address: TypeAlias = IPv4Address | IPv6Address
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_NUMBER = r"(0x[0-9a-f]*|\d+)"
_NUMERIC = re.compile(rf"{_NUMBER}(\.{_NUMBER}){{0,3}}", re.IGNORECASE)
"""IPv4 in any of the forms that the socket library reads: dotted, decimal, octal, hexadecimal, shortened."""


class BlockedAddress(OSError):
    """The request may not access this address."""


@dataclass(frozen=True, slots=True)
class AddressGuard:
    """The hosts that may lie anywhere; all others are reached at public addresses alone."""

    trusted: frozenset[tuple[str, int]]
    """Host and port, as the declaration writes them."""

    def trusts(self, url: URL) -> bool:
        """Whether the declaration names the host."""
        return (_host_of(url), url.port or 0) in self.trusted

    def check(self, url: URL) -> None:
        """Raises BlockedAddress for what is no web address, and for a private address in any form."""
        host = _host_of(url)
        if url.scheme not in ("http", "https") or not host:
            raise BlockedAddress("the address is not an http or https URL with a host")
        address = None if self.trusts(url) else _parse_address(host)
        if address is not None and not is_public(address):
            raise BlockedAddress(f"the host {host} is a private address, which this tool may not access")

    def allowed(self, host: str, port: int, addresses: Iterable[str]) -> list[str]:
        """The addresses of a name that may be connected to. Raises BlockedAddress when there are none."""
        addresses = list(addresses)
        if (host, port) in self.trusted:
            return addresses
        found = [text for text in addresses if is_public(ipaddress.ip_address(text.partition("%")[0]))]
        if addresses and not found:
            raise BlockedAddress(f"the host {host} lies at a private address, which this tool may not access")
        return found


def trusted_hosts(url: str, also: Collection[str] = ()) -> frozenset[tuple[str, int]]:
    """The host and port of a URL, and of `name` (both web ports) or `name:port` texts."""
    parsed = URL(url)
    hosts = {(_host_of(parsed), parsed.port or 0)} if parsed.host else set()
    for text in also:
        named = URL(f"http://{text}")
        ports = (named.explicit_port,) if named.explicit_port else (80, 443)
        hosts |= {(_host_of(named), port) for port in ports}
    return frozenset(hosts)


def is_public(address: _Address) -> bool:
    """Whether an address, and any IPv4 address that it carries, belongs to the public network."""
    carried = _list_carried(address) if isinstance(address, IPv6Address) else []
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return is_public(address.ipv4_mapped)
    return address.is_global and not address.is_multicast and all(is_public(inner) for inner in carried)


def _list_carried(address: IPv6Address) -> list[IPv4Address]:
    """IPv4 addresses that a gateway would take out of an IPv6 address and connect to."""
    found = [address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        found.append(IPv4Address(address.packed[-4:]))
    return [inner for inner in found if inner is not None]


class GuardedResolver(AbstractResolver):
    """Looks names up and gives only the addresses that may be connected to."""

    def __init__(self, guard: AddressGuard, resolver: AbstractResolver | None = None) -> None:
        self._guard = guard
        self._resolver = resolver or DefaultResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The allowed addresses. Raises BlockedAddress when the name has none, OSError when it is not known."""
        results = await self._resolver.resolve(host, port, family)
        allowed = set(self._guard.allowed(_normalize_host(host), port, [result["host"] for result in results]))
        return [result for result in results if result["host"] in allowed]

    async def close(self) -> None:
        """Closes the resolver that is asked."""
        await self._resolver.close()


def _host_of(url: URL) -> str:
    return _normalize_host(url.host or "")


def _normalize_host(host: str) -> str:
    return host.lower().rstrip(".")


def _parse_address(host: str) -> _Address | None:
    """The address that a host is, in any form; None for a name."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host)) if _NUMERIC.fullmatch(host) else None
    except OSError:
        return None
