"""Requests at random, by the description that a server gives of itself: never status 500."""

from __future__ import annotations

import http.client
import random
from typing import Any
from urllib.parse import quote

from web.visitors import Client

ODD: list[Any] = [
    None, True, -1, 0, 3, 2**31, 2**63, 10**40, 1.5, -0.0, 1e300, "", "ann", "x" * 61, "x" * 9000,
    "\x00", "é\u202e💧", "../../secret.txt", "' OR 1=1 --", "<script>", [], [0], [[[]]], {},
    {"a": 1}, [0] * 2000, "choose", "skip", "undo", "12345678",
]  # fmt: skip
HEADERS = [
    {}, {"Origin": "null"}, {"Content-Type": "text/plain"}, {"Content-Length": "-1"},
    {"Content-Length": "99999999999999"}, {"Host": "x"}, {"Cookie": "\xff=;;;"},
    {"Range": "bytes=0-"}, {"If-None-Match": "*"}, {"Expect": "100-continue"},
    {"Accept-Encoding": "br"}, {"X": "y" * 5000},
]  # fmt: skip


def value(luck: random.Random, schema: dict[str, Any]) -> Any:
    """Something for a field: mostly of the right kind, to get past the first check."""
    if luck.random() < 0.25:
        return luck.choice(ODD)
    if "enum" in schema:
        return luck.choice(schema["enum"])
    if "anyOf" in schema:
        return value(luck, luck.choice(schema["anyOf"]))
    match schema.get("type"):
        case "integer":
            return luck.choice([0, 1, 2, 5, 6, 7, 2**31, -1])
        case "number":
            return luck.choice([0.0, 1.5, 1e6, 1e7])
        case "array":
            return [value(luck, schema.get("items", {})) for _ in range(luck.randrange(4))]
        case "string":
            return luck.choice(
                ["ann", "bob", "request-1", "request-2", f"{luck.getrandbits(64):016x}"]
            )
        case "null":
            return None
    return luck.choice(ODD)


def requests(schema: dict[str, Any], luck: random.Random, count: int):
    """Method, path, body and headers."""
    operations = [
        (method.upper(), path, told)
        for path, methods in schema["paths"].items()
        for method, told in methods.items()
    ]
    for _ in range(count):
        method, path, told = luck.choice(operations)
        for part in told.get("parameters", []):
            if part["in"] == "path":
                text = str(value(luck, part["schema"]))
                quoted = quote(text, safe="")
                path = path.replace(f"{{{part['name']}}}", quoted[:3000])
        if luck.random() < 0.1:
            path += luck.choice(["/", "?", "?whole=true", "?whole=%00", "?token=x", "/..", "#"])
        if luck.random() < 0.05:
            method = luck.choice(["PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"])
        body: Any = None
        if "requestBody" in told:
            name = told["requestBody"]["content"]["application/json"]["schema"]["$ref"]
            fields = schema["components"]["schemas"][name.rpartition("/")[2]]
            body = {
                field: value(luck, kind)
                for field, kind in fields["properties"].items()
                if field in fields["required"] or luck.random() < 0.6
            }
            if luck.random() < 0.1:
                body = luck.choice([b"", b"{", b"\xff", luck.choice(ODD), [body], body | {"x": 1}])
        yield method, path, body, luck.choice(HEADERS) if luck.random() < 0.15 else {}


def storm(
    client: Client, schema: dict[str, Any], count: int, *, seed: int, hidden: list[str]
) -> dict[int, int]:
    """Send requests; how often each status was answered, 0 for none.

    Args:
        client: Who sends them.
        schema: The description of the server.
        count: How many requests.
        seed: Of what they are.
        hidden: Words that no answer may hold.
    """
    statuses: dict[int, int] = {}
    for method, path, body, headers in requests(schema, random.Random(seed), count):
        told = {name.replace("-", "_"): text for name, text in headers.items()}
        try:
            status, _, content = client.send(method, path, body, **told)
        except (http.client.HTTPException, ConnectionError):
            status, content = 0, b""  # what is no HTTP ends without an answer
        statuses[status] = statuses.get(status, 0) + 1
        assert status < 500, (method, path, body, headers, content)
        for word in hidden:
            assert word.encode() not in content
    assert statuses.get(200, 0) > count / 10, "requests must get past the first check"
    assert sum(statuses.get(code, 0) for code in (404, 409, 422)) > count / 10
    return statuses
