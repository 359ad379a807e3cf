"""Who is answered, what a write must bring, and what every response carries."""

from __future__ import annotations

import pytest

from rlf.core.servers import own_names

from .conftest import ORIGIN, TOKEN

PLACES = ("/", "/runs", "/api/v1/runs", "/api/v1/openapi.json", "/nothing")


@pytest.mark.parametrize("path", [*PLACES, "/static/app.css"])
def test_a_foreign_host_is_misdirected_everywhere(client, path):
    assert client.get(path, headers={"Host": "evil.example"}).status_code == 421


@pytest.mark.parametrize("path", [*PLACES, "/static/app.css"])
def test_pages_of_other_origins_are_refused_everywhere(client, path):
    assert client.get(path, headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.get(path, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403


@pytest.mark.parametrize("path", PLACES)
def test_without_the_token_there_is_nothing_but_static_files(client, path):
    for bearer in ("", "Bearer ", "Bearer wrong", f"Basic {TOKEN}"):
        assert client.get(path, headers={"Authorization": bearer}).status_code == 401
    assert client.get("/static/app.css", headers={"Authorization": ""}).status_code == 200


def test_the_token_of_an_address_becomes_a_cookie_and_leaves_the_address(client):
    client.headers["Authorization"] = ""
    response = client.get(f"/runs?q=step&token={TOKEN}", follow_redirects=False)
    assert (response.status_code, response.headers["location"]) == (303, "/runs?q=step")
    assert "HttpOnly" in response.headers["set-cookie"] and "SameSite=strict" in response.headers["set-cookie"]
    assert client.get("/runs").status_code == 200


def test_the_redirect_stays_on_this_host(client):
    response = client.get(f"//evil.example/?token={TOKEN}", follow_redirects=False)
    assert not response.headers.get("location", "/").startswith("//")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"])
@pytest.mark.parametrize("missing", ["Origin", "X-RLF"])
def test_every_method_that_does_not_read_needs_origin_and_header(client, method, missing):
    del client.headers[missing]
    assert client.request(method, "/api/v1/runs").status_code == 403


@pytest.mark.parametrize("origin", ["http://[", "null", "", ORIGIN + "\\@evil"])
def test_an_origin_that_is_none_is_refused(client, origin):
    assert client.get("/runs", headers={"Origin": origin}).status_code == 403


def test_a_blank_among_the_allowed_names_allows_nobody(monkeypatch):
    monkeypatch.setenv("RLF_ALLOWED_HOSTS", "proxy, ,")
    assert own_names() >= {"proxy"} and "" not in own_names()


def test_large_bodies_are_refused(client):
    assert client.post("/api/v1/runs", content=b"x" * 1_000_001).status_code == 413


@pytest.mark.parametrize("path", [*PLACES, "/static/app.css"])
def test_every_response_forbids_scripts_of_others_and_guessed_types(client, path):
    headers = client.get(path).headers
    assert "script-src 'self';" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "access-control-allow-origin" not in headers


def test_the_origin_must_be_the_server_itself(client):
    assert client.post("/api/v1/runs", headers={"Origin": ORIGIN.replace("8642", "8643")}).status_code == 403
