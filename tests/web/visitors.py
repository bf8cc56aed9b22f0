"""Those who visit a real server in tests: over a plain connection, and in a real browser."""

from __future__ import annotations

import http.client
import json
import os
from pathlib import Path
from typing import Any

import pytest

import machine

SHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import sync_playwright

    found = machine.find("chromium")
    if found is None:  # shared fixtures are made before the mark of a test is looked at
        pytest.skip("chromium is not installed")
    with sync_playwright() as driver:
        # Chromium's sandbox refuses root.
        alone = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=found, args=alone)
        yield browser
        browser.close()


class Client:
    """One visitor, with the cookies that the server has set."""

    def __init__(self, port: int, *, host: str | None = None, cookie: str = "") -> None:
        self.port, self.cookie = port, cookie
        self.host = f"127.0.0.1:{port}" if host is None else host

    def send(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the answer; `body` is JSON unless it is bytes."""
        told = {
            "Host": self.host,
            **{name.replace("_", "-"): text for name, text in headers.items()},
        }
        if self.cookie:
            told.setdefault("Cookie", self.cookie)
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if method == "POST":
            told.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body=body, headers=told)
            answer = connection.getresponse()
            found = {name.lower(): text for name, text in answer.getheaders()}
            return answer.status, found, answer.read()
        finally:
            connection.close()

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        """The JSON of an answer that must be a success."""
        status, _, content = self.send("POST", f"/api/{path}", body)
        assert status == 200, (status, content)
        return json.loads(content)


class Visitor:
    """Somebody at a page, and everything that went wrong in their browser."""

    def __init__(self, browser, address: str, *, name: str = "ann", **window) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}} | window)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.elsewhere: list[str] = []
        self.page.on("console", lambda said: self._heard(said.type, said.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda asked: self._asked(asked.url, address))
        self.page.goto(address)
        self.page.wait_for_selector("#welcome[open]")
        self.page.keyboard.type(name)  # the field of the name has the focus
        self.page.keyboard.press("Enter")
        self.wait(None)

    def _heard(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.errors.append(text)

    def _asked(self, url: str, address: str) -> None:
        if not url.startswith(("blob:", "data:", address.partition("?")[0])):
            self.elsewhere.append(url)

    def wait(self, before: str | None) -> None:
        """Until another image is on the screen."""
        raise NotImplementedError

    def shot(self, name: str) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png")

    def leave(self) -> None:
        assert self.errors == []
        assert self.elsewhere == []
        self.context.close()

    def serious(self) -> list[Any]:
        """What axe-core finds on the page that keeps people from using it."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page).response["violations"]
        return [each for each in found if each["impact"] in ("serious", "critical")]

    def small(self) -> list[str]:
        """Buttons that are too small for a finger."""
        return self.page.evaluate(
            "[...document.querySelectorAll('main button')].filter(b => b.offsetParent &&"
            " (b.offsetHeight < 24 || b.offsetWidth < 24)).map(b => b.id || b.className)"
        )
