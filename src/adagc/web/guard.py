"""What every request must pass before the server looks at it, and what every answer carries.

The page is for people who were given its address, and for the page itself: no other site that is
open in their browser may reach it, and no request may keep the server busy.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

BODY: Final = 64 * 1024  # bytes of a request; those of the page have a few hundred
_SLOW: Final = 10.0  # seconds until all of a request must have arrived

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    b"content-security-policy": _POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), microphone=(), geolocation=()",
}


class Guard:
    """Lets requests through to an application that come from whom they should.

    Args:
        hosts: Names by which the server may be called, in lower case.
        any_address: Any address in digits may be used too: no other site can pretend to be that.
        token: What every request must carry, in the address or as a cookie; None if the server
            listens to this machine only.

    Attributes:
        app: The application (ASGI), to be set before the first request.
    """

    app: Any

    def __init__(self, *, hosts: frozenset[str], any_address: bool, token: str | None) -> None:
        self._hosts, self._any, self._token = hosts, any_address, token

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer a request, or say why not."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = _headers(scope)
        refusal = self._refused(scope, headers)
        if refusal is not None:
            await _say(send, *refusal)
            return
        given = self._given(scope)
        if given is not None and scope["method"] == "GET":
            await self._welcome(scope, send, given)
            return
        body = await _body(headers, receive)
        if isinstance(body, tuple):
            await _say(send, *body)
            return
        await self.app(scope, _replaying(body, receive), _adding(send))

    def _refused(self, scope: dict[str, Any], headers: dict[str, str]) -> tuple[int, str] | None:
        """Status and reason if a request is not to be answered."""
        host = headers.get("host", "")
        if not self._is_ours(host):
            return 421, "this server is not called by that name"
        if not self._is_known(scope, headers):
            return 403, "open the address that adagc has printed: it holds a token"
        if scope["method"] not in ("GET", "HEAD"):
            origin = headers.get("origin")
            if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
                return 403, "another site may not write here"
            if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
                return 403, "another site may not write here"
            # A form of another site can send everything but this without asking first.
            if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
                return 415, "requests are JSON"
        return None

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return self._any

    def _is_known(self, scope: dict[str, Any], headers: dict[str, str]) -> bool:
        if self._token is None:
            return True
        given = self._given(scope)
        if given is None:
            try:
                cookie = SimpleCookie(headers.get("cookie", "")).get(_cookie(scope))
            except CookieError:
                return False
            given = "" if cookie is None else cookie.value
        return hmac.compare_digest(given.encode(), self._token.encode())

    def _given(self, scope: dict[str, Any]) -> str | None:
        """The token in the address."""
        if self._token is None:
            return None
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        return query["token"][0] if "token" in query else None

    async def _welcome(self, scope: dict[str, Any], send: Any, token: str) -> None:
        """Remember the right token as a cookie, and take it out of the address."""
        cookie = f"{_cookie(scope)}={token}; HttpOnly; SameSite=Strict; Path=/"
        await _say(send, 303, "", {b"location": b"/", b"set-cookie": cookie.encode()})


def _headers(scope: dict[str, Any]) -> dict[str, str]:
    pairs = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
    return {name.lower(): value for name, value in pairs}


def _cookie(scope: dict[str, Any]) -> str:
    """The name of the cookie, one per port: browsers do not keep ports apart."""
    return f"adagc-{scope['server'][1]}"


async def _body(headers: dict[str, str], receive: Any) -> bytes | tuple[int, str]:
    """All of a request's body; status and reason if it is too large or comes too slowly."""
    length = headers.get("content-length", "0")
    if not length.isdecimal() or len(length) > 12 or int(length) > BODY:
        return 413, "that is more than a request may hold"
    parts: list[bytes] = []
    try:
        async with asyncio.timeout(_SLOW):
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return 400, "the request is not complete"
                parts.append(message.get("body", b""))
                more = message.get("more_body", False)
                if sum(map(len, parts)) > BODY:
                    return 413, "that is more than a request may hold"
    except TimeoutError:
        return 408, "the request came too slowly"
    return b"".join(parts)


def _replaying(body: bytes, receive: Any) -> Any:
    """A receive that gives the body that was read, once."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Any:
        return waiting.pop() if waiting else await receive()

    return again


def _adding(send: Any) -> Any:
    """A send that adds the headers that every answer carries."""

    async def add(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = {name.lower() for name, _ in message["headers"]}
            message["headers"] = [
                *message["headers"],
                *((name, value) for name, value in _HEADERS.items() if name not in own),
            ]
            if b"cache-control" not in own:
                message["headers"].append((b"cache-control", b"no-store"))
        await send(message)

    return add


async def _say(
    send: Any, status: int, reason: str, headers: dict[bytes, bytes] | None = None
) -> None:
    """Answer without asking the application; the connection ends with a refusal."""
    content = json.dumps({"problem": reason}).encode()
    closing = {b"connection": b"close"} if status >= 400 else {}
    told = {b"content-type": b"application/json", **closing, **(headers or {})}
    length = {b"content-length": str(len(content)).encode()}
    start = {
        "type": "http.response.start",
        "status": status,
        "headers": list((told | length).items()),
    }
    add = _adding(send)
    await add(start)
    await add({"type": "http.response.body", "body": content})
