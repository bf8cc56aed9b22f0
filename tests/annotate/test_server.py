"""The server over real connections: what the page gets, and what nobody gets."""

from __future__ import annotations

import http.client
import json
import re
import socket
import sqlite3
import threading
import time
from contextlib import suppress

import pytest

from adagc import atomic
from adagc.web import guard
from adagc.web.app import DISK_FULL
from adagc.web.shown import BROKEN
from annotate.projects import CLASSES
from annotate.served import make_images, serving
from full_disk import FullDisk
from web.visitors import Client

SECRET = "not for the page"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("served")
    make_images(place / "images")
    (place / "secret.txt").write_text(SECRET)
    return place


@pytest.fixture(scope="module")
def running(folder):
    with serving(folder) as made:
        yield made


@pytest.fixture
def client(running) -> Client:
    return running[1]


def answer(view: dict, place: int = 0, **more) -> dict:
    key = {"kind": "choose", "present": [view["candidates"][place]], "key": place}
    return {"image": view["image"], "request": f"request-{view['image']}-{place}", **key, **more}


# -- what the page gets ----------------------------------------------------------------------------


def test_the_page_and_its_parts(client):
    for path, kind in [
        ("/", "text/html"),
        ("/app.js", "text/javascript"),
        ("/style.css", "text/css"),
    ]:
        status, headers, content = client.send("GET", path)
        assert status == 200
        assert headers["content-type"].startswith(kind)
        assert content


def test_every_part_that_the_page_names_is_there_and_none_is_elsewhere(client):
    _, _, page = client.send("GET", "/")
    named = re.findall(r'(?:href|src)="([^"]+)"', page.decode())
    modules = re.findall(r'from "\./([^"]+)"', client.send("GET", "/app.js")[2].decode())
    assert len(named) >= 3
    for path in [*named, *modules]:
        assert "//" not in path
        assert client.send("GET", f"/{path}")[0] == 200


def test_a_session(running):
    project, client, _ = running
    told = json.loads(client.send("GET", "/api/project")[2])
    assert told["classes"] == list(CLASSES)
    view = client.post("look", name="ann")
    chosen = CLASSES[view["candidates"][1]]
    after = client.post("answer", name="ann", **answer(view, 1, seconds=2.25))
    assert after["image"] == view["upcoming"]
    assert after["counts"][CLASSES.index(chosen)] == 1
    assert project.labels()[project.names[view["image"]]] == chosen
    other = client.post("refresh", name="ann", image=after["image"])
    assert not set(other["candidates"]) & set(after["candidates"])
    back = client.post("undo", name="ann", request="take-it-back")
    assert back["image"] == view["image"]
    assert project.names[view["image"]] not in project.labels()


def test_a_picture_and_a_broken_one(running):
    project, client, _ = running
    status, headers, content = client.send("GET", "/api/picture/0/0")
    assert (status, headers["content-type"]) == (200, "image/png")
    assert content.startswith(b"\x89PNG")
    _, _, alone = client.send("GET", "/api/picture/0/0?alone=true")
    assert alone.startswith(b"\x89PNG")
    assert alone != content, "stretched by this image alone"
    assert client.send("GET", "/api/picture/0/0?alone=false")[2] == content
    broken = project.names.index("i5")
    status, _, content = client.send("GET", f"/api/picture/{broken}/0")
    assert status == 422
    assert json.loads(content)["problem"] == BROKEN


def test_no_answer_names_a_place_of_this_machine(running, folder):
    _, client, _ = running
    asked = [
        ("GET", "/"), ("GET", "/api/project"), ("GET", "/api/picture/5/0"), ("GET", "/api/place/0"),
        ("GET", "/nothing"), ("POST", "/api/look"), ("POST", "/api/answer"),
    ]  # fmt: skip
    for method, path in asked:
        body = {"name": "ann"} if method == "POST" else None
        _, headers, content = client.send(method, path, body)
        text = str(headers) + content.decode(errors="replace")
        assert str(folder) not in text
        assert "i5" not in text


# -- what nobody gets ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt", "/..%2fsecret.txt", "/%2e%2e/secret.txt", "/api/picture/../../secret.txt",
        "/api/picture/..%2f..%2fsecret.txt/0", "/api/picture/0/../../../secret.txt", "//etc/passwd",
        "/api/picture/%2fetc%2fpasswd/0", "/index.html", "/page/index.html", "/labels.csv",
        "/labels.sqlite", "/secret.txt", "/api/picture/0/0/../../../../secret.txt", "/docs",
        "/openapi.json", "/redoc", "/\\..\\secret.txt", "/api/picture/i0.png/0",
        f"/api/picture/{2**31}/0", f"/api/picture/{10**400}/0", "/api/picture/-1/0",
        "/api/picture/6/0", "/api/picture/0/1", "/api/picture/0/99999999999", "/api/picture/1e3/0",
        "/api/picture/0/0?whole=%00", "/api/place/99", "/api/place/x",
    ],
)  # fmt: skip
def test_nothing_but_pictures_by_their_number(client, path):
    status, _, content = client.send("GET", path)
    assert status in (400, 404, 405, 422)
    assert SECRET.encode() not in content
    assert b"root:" not in content


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "[", "localhost.", "10.0.0.1"]
)
def test_other_names_of_the_host_are_refused(client, host):
    other = Client(client.port, host=host)
    assert other.send("GET", "/")[0] == 421
    assert other.send("POST", "/api/look", {"name": "ann"})[0] == 421


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_names_of_this_machine_are_answered(client, host):
    assert Client(client.port, host=f"{host}:{client.port}").send("GET", "/")[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_sites_cannot_write(client, headers):
    before = client.post("look", name="safe")
    body = {"name": "safe", **answer(before)}
    assert client.send("POST", "/api/answer", body, **headers)[0] == 403
    assert client.post("look", name="safe")["mine"] == before["mine"]


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_what_a_form_can_send_is_refused(client, kind):
    status, _, _ = client.send("POST", "/api/look", {"name": "ann"}, Content_Type=kind)
    assert status == 415


def test_the_page_itself_can_write(client):
    own = f"http://127.0.0.1:{client.port}"
    status, headers, _ = client.send(
        "POST", "/api/look", {"name": "ann"}, Origin=own, Sec_Fetch_Site="same-origin"
    )
    assert status == 200
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "path", ["/", "/app.js", "/api/project", "/api/picture/0/0", "/nothing", "/api/picture/5/0"]
)
def test_every_answer_forbids_what_the_page_does_not_need(client, path):
    _, headers, _ = client.send("GET", path)
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert not any("unsafe" in part or "http" in part or "*" in part for part in policy.values())
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"1e999", b"\xff\xfe", b"[" * 30_000, b'{"name": 1}',
        b'{"name": ""}', b'{"name": "   "}', b'{"name": "a\\u0000b"}', b'{"name": "\\ud800"}',
        json.dumps({"name": "x" * 61}).encode(), b'{"name": "a", "more": 1}', b'{"name": NaN}',
    ],
)  # fmt: skip
def test_malformed_requests(client, body):
    for path in ("look", "answer", "refresh", "undo", "reopen"):
        status, _, content = client.send("POST", f"/api/{path}", body)
        assert 400 <= status < 500
        assert "problem" in json.loads(content)


@pytest.mark.parametrize(
    "change",
    [
        {"image": -1}, {"image": 2**70}, {"image": "0"}, {"image": 1.5}, {"image": True},
        {"present": [99]}, {"present": [-1]}, {"present": "forest"}, {"present": []},
        {"present": list(range(1001))}, {"kind": "undo"}, {"kind": "shown"}, {"key": 9},
        {"key": -1},
        {"seconds": -1}, {"seconds": 1e300}, {"request": "x"}, {"request": "a/../../b----"},
        {"absent": [0]}, {"name": "a\nb"}, {"path": "/etc/passwd"},
    ],
)  # fmt: skip
def test_answers_with_one_thing_wrong(client, change):
    view = client.post("look", name="wrong")
    body = {"name": "wrong", **answer(view), **change}
    status, _, _ = client.send("POST", "/api/answer", body)
    assert 400 <= status < 500
    assert client.post("look", name="wrong")["mine"] == 0


def test_a_body_of_10_megabytes_is_refused_at_once(client):
    body = json.dumps({"name": "a" * 10_000_000}).encode()
    try:
        status, _, _ = client.send("POST", "/api/look", body)
        assert status == 413
    except (BrokenPipeError, ConnectionResetError):
        pass  # the server did not wait for all of it
    assert client.post("look", name="ann")["total"] == 6


def test_a_body_that_does_not_say_its_length_is_limited_too(client):
    with socket.create_connection(("127.0.0.1", client.port), timeout=30) as line:
        line.sendall(
            f"POST /api/look HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        try:
            for _ in range(40):
                line.sendall(b"2000\r\n" + b" " * 0x2000 + b"\r\n")
            line.sendall(b"0\r\n\r\n")
        except OSError:
            pass
        assert b" 413 " in line.recv(200)


def test_slow_bodies_end_and_keep_nobody_waiting(client, monkeypatch):
    monkeypatch.setattr(guard, "_SLOW", 1.5)
    lines = []
    for _ in range(60):
        line = socket.create_connection(("127.0.0.1", client.port), timeout=30)
        line.sendall(
            f"POST /api/look HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\n"
            "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{".encode()
        )
        lines.append(line)
    began = time.process_time()
    assert client.post("look", name="quick")["total"] == 6
    assert time.process_time() - began < 1
    for line in lines:
        assert b" 408 " in line.recv(200)
        line.close()


def test_slow_and_huge_bodies_do_not_slow_down_others(client):
    """Fifty bodies that come byte by byte, and four people who send ten megabytes each time."""
    done = threading.Event()
    lines = []
    for _ in range(50):
        line = socket.create_connection(("127.0.0.1", client.port), timeout=30)
        line.sendall(
            f"POST /api/answer HTTP/1.1\r\nHost: 127.0.0.1:{client.port}\r\n"
            "Content-Type: application/json\r\nContent-Length: 60000\r\n\r\n".encode()
        )
        lines.append(line)
    huge = b" " * 10_000_000
    refused = []

    def trickle() -> None:
        while not done.wait(0.02):
            for line in lines:
                with suppress(OSError):  # the server has ended it
                    line.sendall(b" ")

    def flood() -> None:
        while not done.is_set():
            try:
                refused.append(client.send("POST", "/api/look", huge)[0])
            except OSError:
                refused.append(413)  # it did not wait for all of it

    workers = [
        threading.Thread(target=trickle),
        *(threading.Thread(target=flood) for _ in range(4)),
    ]
    for worker in workers:
        worker.start()
    waits = []
    try:
        for _ in range(30):
            began = time.perf_counter()
            assert client.post("look", name="quick")["total"] == 6
            waits.append(time.perf_counter() - began)
    finally:
        done.set()
        for worker in workers:
            worker.join(60)
        for line in lines:
            line.close()
    assert refused
    assert set(refused) == {413}
    assert sorted(waits)[len(waits) // 2] < 1, waits
    assert max(waits) < 10, waits


def test_an_answer_is_sent_at_once(client):
    """Not when the other side has confirmed the part before it, which takes 40 ms."""
    line = http.client.HTTPConnection("127.0.0.1", client.port, timeout=60)
    waits = []
    for _ in range(40):
        began = time.perf_counter()
        line.request("GET", "/api/project")
        line.getresponse().read()
        waits.append(time.perf_counter() - began)
    line.close()
    assert sorted(waits[10:])[5] < 0.03, "the first ones are confirmed sooner"


def test_requests_that_are_no_http(client):
    for junk in (
        b"\x00" * 100,
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/1.1\r\n" + b"A" * 200_000,
    ):
        with socket.create_connection(("127.0.0.1", client.port), timeout=30) as line:
            answered = b""
            try:  # the server may have ended the connection before all of it was sent
                line.sendall(junk)
                line.shutdown(socket.SHUT_WR)
                while part := line.recv(65536):
                    answered += part
            except OSError:
                pass
            assert b" 500 " not in answered
    assert client.post("look", name="ann")["total"] == 6


# -- other addresses than this machine -------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    place = tmp_path_factory.mktemp("guarded")
    make_images(place / "images")
    with serving(place, host="127.0.0.1") as made:
        yield made


def test_with_a_host_everything_takes_a_token(guarded):
    _, client, server = guarded
    token = server.address.partition("?token=")[2]
    assert len(token) >= 32
    for method, path in [
        ("GET", "/"),
        ("GET", "/app.js"),
        ("GET", "/api/picture/0/0"),
        ("POST", "/api/look"),
    ]:
        body = {"name": "ann"} if method == "POST" else None
        assert client.send(method, path, body)[0] == 403
        assert client.send(method, f"{path}?token=wrong", body)[0] == 403
        assert client.send(method, f"{path}?token=", body)[0] == 403
        assert client.send(method, f"{path}?token=wrong&token={token}", body)[0] == 403
        assert client.send(method, f"{path}?token=%FF{token}", body)[0] == 403
        assert client.send(method, path, body, Cookie="adagc=; x=1")[0] == 403


def test_the_token_becomes_a_cookie_and_leaves_the_address(guarded):
    _, client, server = guarded
    token = server.address.partition("?token=")[2]
    status, headers, _ = client.send("GET", f"/?token={token}")
    assert (status, headers["location"]) == (303, "/")
    cookie, *attributes = headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(attributes)
    known = Client(client.port, cookie=cookie)
    assert known.send("GET", "/")[0] == 200
    assert known.post("look", name="ann")["total"] == 6
    assert Client(client.port, cookie=cookie[:-1]).send("GET", "/")[0] == 403


def test_with_a_host_any_address_in_digits_is_answered_and_no_other_name(guarded):
    _, client, server = guarded
    token = server.address.partition("?token=")[2]
    for host, status in [
        ("192.0.2.7", 303),
        ("[2001:db8::1]:80", 303),
        (socket.gethostname(), 303),
        ("evil.example", 421),
    ]:
        assert Client(client.port, host=host).send("GET", f"/?token={token}")[0] == status


# -- what is not saved is not acknowledged ---------------------------------------------------------


def test_a_full_disk_under_the_label_file_is_told_and_made_good(tmp_path, monkeypatch):
    make_images(tmp_path / "images")
    with serving(tmp_path) as (project, client, _):
        view = client.post("look", name="ann")
        disk = FullDisk(monkeypatch, "labels.csv")
        body = {"name": "ann", **answer(view)}
        status, _, content = client.send("POST", "/api/answer", body)
        assert (status, json.loads(content)["problem"]) == (507, DISK_FULL)
        assert project.names[view["image"]] not in project.labels()
        disk.free()
        after = client.post("answer", **body)
        assert after["mine"] == 1
        assert list(project.labels()) == [project.names[view["image"]]]
        assert sum(event.kind == "choose" for event in project.events) == 1
    assert atomic  # the disk is as it was


def test_a_full_disk_under_the_events_is_told_and_nothing_is_kept(tmp_path):
    make_images(tmp_path / "images")
    with serving(tmp_path) as (project, client, _):
        view = client.post("look", name="ann")
        database = project.store._database
        pages = database.execute("PRAGMA page_count").fetchone()[0]
        database.execute(f"PRAGMA max_page_count = {pages}")
        refused = None
        for _ in range(400):  # until the last page is full
            status, _, content = client.send(
                "POST", "/api/refresh", {"name": "ann", "image": view["image"]}
            )
            if status != 200:
                refused = status, json.loads(content)["problem"]
                break
        assert refused == (507, DISK_FULL)
        kept = len(project.events)
        before = client.send("POST", "/api/answer", {"name": "ann", **answer(view)})
        assert before[0] in (507, 409)
        assert len(project.events) == kept
        database.execute("PRAGMA max_page_count = 100000")
        now = client.post("look", name="ann")
        assert client.post("answer", name="ann", **answer(now))["mine"] == 1


def test_events_can_neither_be_changed_nor_deleted(tmp_path):
    make_images(tmp_path / "images")
    with serving(tmp_path) as (project, client, _):
        client.post("look", name="ann")
        for change in ("DELETE FROM events", "UPDATE events SET annotator = 'eve'"):
            with pytest.raises(sqlite3.IntegrityError, match="never"):
                project.store._database.execute(change)


def test_people_at_the_same_time_through_the_server(tmp_path):
    make_images(tmp_path / "images", 60)
    with serving(tmp_path) as (project, client, _):
        problems = []

        def work(who: str) -> None:
            try:
                view = client.post("look", name=who)
                while view["image"] is not None:
                    body = answer(view, request=f"{who}-{view['image']:08}")
                    view = client.post("answer", name=who, **body)
            except Exception as error:
                problems.append(error)

        threads = [threading.Thread(target=work, args=(f"p{n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not problems
        assert len(project.labels()) == 60
