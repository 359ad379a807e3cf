"""Runs a command in a network of its own whose one address is that of the sessions: `bridge.py SOCKET PORT COMMAND...`.

It is started inside of the sandbox, by the interpreter alone: a connection to the port is one to the socket.
"""

import contextlib
import socket
import subprocess
import sys
import threading


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(1 << 16):
            target.sendall(piece)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _connect(visitor: socket.socket, path: str) -> None:
    with visitor, socket.socket(socket.AF_UNIX) as server, contextlib.suppress(OSError):
        server.connect(path)
        back = threading.Thread(target=_copy, args=(server, visitor), daemon=True)
        back.start()
        _copy(visitor, server)
        back.join()


def _accept(listener: socket.socket, path: str) -> None:
    while True:
        threading.Thread(target=_connect, args=(listener.accept()[0], path), daemon=True).start()


def main(path: str, port: str, *command: str) -> int:
    """Runs the command; its exit code, or 128 and the signal that ended it."""
    listener = socket.create_server(("127.0.0.1", int(port)), backlog=1024)
    threading.Thread(target=_accept, args=(listener, path), daemon=True).start()
    try:
        code = subprocess.call(command)
    except OSError as error:
        sys.exit(f"it could not be started: {error}")
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
