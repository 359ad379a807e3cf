"""TLS between machines of one owner: a server shows a certificate, and its clients trust that one and no other."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from rlf.core.errors import RlfError


@dataclass(frozen=True, slots=True)
class Certificate:
    """A server's certificate, and its private key."""

    file: Path
    """PEM: the certificate, and those that lead from it to its issuer where it has one."""
    key: Path
    """PEM, not encrypted."""


def certificate_of(file: Path | None, key: Path | None) -> Certificate | None:
    """A pair of options; None without both. Raises RlfError for one alone."""
    if file is None and key is None:
        return None
    if file is None or key is None:
        raise RlfError("--certificate, --key: got one without the other; a server needs both. Write both.")
    return Certificate(file, key)


def server_context(certificate: Certificate | None) -> ssl.SSLContext | None:
    """The TLS context of a server; None for none. Raises RlfError where the files cannot be used."""
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate.file, certificate.key, password=lambda: b"")
    except (OSError, ValueError) as fault:  # ssl.SSLError is an OSError
        raise RlfError(
            f"{certificate.file}, {certificate.key}: these are not a certificate and its key: {fault}. Name two files "
            "in PEM, the key without a password."
        ) from fault
    return context


def client_context(file: Path) -> ssl.SSLContext:
    """Trusts the server that shows this certificate, by the name in it, and no other.

    Raises:
        OSError: the file cannot be read, or is no certificate.
    """
    context = ssl.create_default_context(cafile=file)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # one that an authority has issued is enough by itself
    return context
