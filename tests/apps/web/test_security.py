"""Every route that there is, attacked: a new one is enrolled by being registered."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from rlf.apps.web.app import create_app
from rlf.apps.web.settings import WebSettings

from ...reports.synthetic import run_record
from .conftest import ORIGIN, TOKEN

_EVIL = ("..", "%2e%2e%2fsecret", "..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd", "%00", ".env", "-x", "<script>")
_FILLED = {"step": "1", "k": "0", "phase": "train", "role": "spec", "which": "train", "action": "test"}
_STREAM = "/api/v1/events"


def _routes(*, read_only=False):
    app = create_app(WebSettings(Path(), Path("none"), read_only=read_only))
    found = []

    def walk(routes):
        for route in routes:
            if isinstance(route, APIRoute):
                found.extend((method, route.path) for method in sorted(route.methods))
            elif hasattr(route, "original_router"):
                walk(route.original_router.routes)
            elif hasattr(route, "routes") and not hasattr(route, "methods"):
                walk(route.routes or [])

    walk(app.routes)
    return found


ROUTES = _routes()
READS = [path for method, path in ROUTES if method == "GET"]
WRITES = [(method, path) for method, path in ROUTES if method != "GET"]


def fill(path, value="x"):
    """A path with its parameters filled in; a run is the one that there is."""
    values = _FILLED | {"run": run_record().id, "name": run_record().id}
    return re.sub(r"{(\w+)(:path)?}", lambda match: values.get(match[1], value), path)


class _Nothing:
    """In place of the zygote: what user code says is not the subject here."""

    def call(self, task, **asked):
        return None

    read = call

    def close(self):
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("project")
    (found / "secret").write_text("the-secret-text")
    (found / ".env").write_text("KEY=the-secret-text")
    return found


@pytest.fixture(scope="module")
def client(runs_folder, folder):
    """One client for all attacks; its headers are right unless a test gives others."""
    app = create_app(WebSettings(folder, runs_folder, port=8642, token=TOKEN))
    app.state.site.fresh = _Nothing()
    with TestClient(app, base_url=ORIGIN, raise_server_exceptions=False) as client:
        client.headers |= {"Authorization": f"Bearer {TOKEN}", "Origin": ORIGIN, "X-RLF": "1"}
        yield client


def test_the_routes_are_found():
    assert len(READS) > 20 and len(WRITES) > 10, ROUTES
    assert "/api/v1/runs" in READS and ("POST", "/api/v1/runs") in WRITES


@pytest.mark.parametrize("path", READS)
def test_no_page_and_no_data_without_the_token_or_for_a_foreign_host_or_page(client, path):
    url = fill(path)
    assert client.get(url, headers={"Host": "evil.example"}).status_code == 421
    assert client.get(url, headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.get(url, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    if not path.startswith("/static/"):
        assert client.get(url, headers={"Authorization": "", "Cookie": ""}).status_code == 401


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_no_write_without_token_origin_and_header(client, method, path):
    url = fill(path)
    assert client.request(method, url, headers={"Host": "evil.example"}).status_code == 421
    assert client.request(method, url, headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.request(method, url, headers={"Origin": "null"}).status_code == 403
    assert client.request(method, url, headers={"X-RLF": ""}).status_code == 403
    assert client.request(method, url, headers={"Authorization": ""}).status_code == 401
    assert client.request(method, url, headers={"Origin": ""}).status_code == 403


def test_a_server_that_is_read_only_has_no_route_that_writes(clients):
    assert {method for method, _ in _routes(read_only=True)} == {"GET"}
    client = clients(read_only=True)
    document = client.get("/api/v1/openapi.json").json()
    assert {method for path in document["paths"].values() for method in path} == {"get"}
    for method, path in WRITES:
        assert client.request(method, fill(path), json={}).status_code in (404, 405)


@pytest.mark.parametrize("path", [path for path in READS if "{" in path and path != _STREAM])
def test_no_parameter_of_a_path_leads_anywhere_else(client, path):
    for evil, name in product(_EVIL, re.findall(r"{(\w+)", path)):
        url = re.sub(rf"{{{name}(:path)?}}", evil, path)
        response = client.get(fill(url), follow_redirects=False)
        assert response.status_code in (200, 303, 307, 400, 404, 405, 422), (url, response.text)
        assert "the-secret-text" not in response.text and "root:" not in response.text
        assert "<script>" not in response.text.replace("<script src=", "") or "json" in response.headers["content-type"]


@pytest.mark.parametrize("path", [path for path in READS if path != _STREAM])
def test_a_get_changes_nothing(client, folder, path):
    before = {file: file.stat().st_mtime_ns for file in folder.rglob("*")}
    client.get(fill(path))
    assert {file: file.stat().st_mtime_ns for file in folder.rglob("*")} == before


def test_openapi_describes_every_route_of_the_api(client):
    document = client.get("/api/v1/openapi.json").json()
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == {(method, re.sub(":path", "", path)) for method, path in ROUTES if path.startswith("/api/v1")}
    ids = [about["operationId"] for methods in document["paths"].values() for about in methods.values()]
    assert len(ids) == len(set(ids))
