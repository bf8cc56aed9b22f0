"""Serving the page: where it listens, its address, and its end."""

from __future__ import annotations

import ipaddress
import secrets
import socket
import threading
from collections.abc import Callable
from typing import Any, Final, Self

import uvicorn

from adagc.errors import UsageError
from adagc.web.guard import Guard

HERE: Final = "127.0.0.1"
_NAMES_OF_HERE: Final = frozenset({HERE, "localhost", "::1"})
_GRACE: Final = 3  # seconds for requests that are under way when the server ends


class Server:
    """A server that listens from the moment it is made; `run` answers.

    So an address that nobody can listen on is told before anything is begun.

    Args:
        host: Address to listen on; None means this machine only, without a token.
        port: Port to listen on; 0 means any that is free.
    """

    def __init__(self, *, host: str | None = None, port: int = 0) -> None:
        self.token = None if host is None else secrets.token_urlsafe(24)
        self._socket = _listening(host or HERE, port)
        self.port: int = self._socket.getsockname()[1]
        names = _NAMES_OF_HERE
        if host is not None:
            names |= {host.lower(), socket.gethostname().lower()}
        self._guard = Guard(hosts=names, any_address=host is not None, token=self.token)
        self.address = f"http://{_called(host)}:{self.port}/"
        if self.token is not None:
            self.address += f"?token={self.token}"
        # Not the thread's own join: interrupted by Ctrl-C, that takes the thread for ended.
        self._ended = threading.Event()
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._guard, log_level="error", access_log=False, server_header=False, ws="none",
                http="h11", loop="asyncio", lifespan="off", proxy_headers=False,
                timeout_keep_alive=30, timeout_graceful_shutdown=_GRACE,
            )
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._socket.close()

    def run(self, app: Any, ready: Callable[[], None] | None = None) -> None:
        """Answer until the process is interrupted.

        Args:
            app: The application (ASGI).
            ready: Called when the server answers.
        """
        self._guard.app = app
        # In a thread, so that Ctrl-C and SIGTERM come to us and not to uvicorn, which would end the
        # process by the signal.
        threading.Thread(target=self._answer, daemon=True).start()
        try:
            while not self._server.started and not self._ended.wait(0.01):
                pass
            if ready is not None:
                ready()
            while not self._ended.wait(1.0):
                pass
        finally:
            self.stop()
            self._ended.wait(10 * _GRACE)
            self._socket.close()

    def _answer(self) -> None:
        try:
            self._server.run([self._socket])
        finally:
            self._ended.set()

    def stop(self) -> None:
        """Let `run` return when the requests that are under way are answered."""
        self._server.should_exit = True


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens; UsageError if it cannot."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        made = socket.create_server((host, port), family=family, backlog=128)
        # Handed down to connections. asyncio sets it only for sockets that name their protocol, and
        # without it every answer in two parts waits 40 ms for the other side's delayed receipt.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"cannot listen on {host}, port {port} ({reason}): choose another --port or --host"
        ) from None


def _called(host: str | None) -> str:
    """How to write the host in an address that others can open."""
    if host is None:
        return HERE
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return host
    if number.is_unspecified:  # 0.0.0.0 is every address of this machine, and none to go to
        return socket.gethostname()
    return f"[{host}]" if number.version == 6 else host
