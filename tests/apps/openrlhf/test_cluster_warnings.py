"""What a cluster's nodes may not find is told with the place where it stands."""

from pathlib import Path

import pytest

from rlf.apps.openrlhf.checks import find_cluster_warnings
from rlf.plan.estimate import planned_engine
from rlf.spec import load_spec

SPECS = Path(__file__).parents[3] / "specs"
TOOL = "{name: t, description: d, inputSchema: {type: object}, target: %s}"


def list_warnings(*overrides):
    loaded = load_spec([SPECS / "search.yaml"], ["engine.kind=openrlhf", *overrides])
    return {warning.path: warning.message for warning in find_cluster_warnings(loaded, "http://head:8265")}


@pytest.mark.parametrize(
    ("target", "path", "words"),
    [
        (
            "{kind: http, url: 'http://localhost:8000/find'}",
            "url",
            "got localhost, which means another machine on every node",
        ),
        ("{kind: http, url: 'http://[::1]:8000/find'}", "url", "got ::1, which means another machine on every node"),
        ("{kind: http, url: 'http://0.0.0.0/find'}", "url", "got 0.0.0.0, which means another machine on every node"),
        (
            "{kind: mcp, server: {url: 'http://127.0.0.2/mcp'}, tool: t}",
            "server.url",
            "got 127.0.0.2, which means another machine",
        ),
        (
            "{kind: mcp, server: {command: bash}, tool: t}",
            "server.command",
            "got bash; every sampling actor starts the command on its",
        ),
        ("{kind: sql, url: '/data/shop.db'}", "url", "got the file /data/shop.db; every node opens its own"),
        ("{kind: python, callable: '/data/find.py:find'}", "callable", "got /data/find.py; every node must find it"),
        (
            "{kind: python, callable: 'json:dumps'}",
            "callable",
            "got json:dumps; every node imports it",
        ),
        ("{kind: model, endpoints: [{url: 'http://localhost/v1', model: m}], prompt: p}", "endpoints[0].url", "got lo"),
    ],
)
def test_what_is_of_this_machine_is_reported(target, path, words):
    (message,) = [
        text for key, text in list_warnings("tools=[" + TOOL % target + "]").items() if key == f"tools[0].target.{path}"
    ]
    assert message.startswith(words)


@pytest.mark.parametrize(
    "target",
    [
        "{kind: http, url: 'http://search.example:8000/find'}",
        "{kind: http, url: 'http://10.0.0.7/find'}",
        "{kind: mcp, server: {url: 'https://tools.example/mcp'}, tool: t}",
        "{kind: python, callable: 'rlf.builtin.encyclopedia:search'}",
    ],
)
def test_what_every_node_finds_is_not(target):
    assert set(list_warnings("tools=[" + TOOL % target + "]")) == {"model.path"}


def test_judges_are_looked_at_too():
    endpoints = "[{url: 'http://localhost:8001/v1', model: m}]"
    judge = f"{{kind: judge, name: j, endpoints: {endpoints}, criteria: [{{name: c, text: c}}]}}"
    assert "rewards[0].endpoints[0].url" in list_warnings(f"rewards=[{judge}]")


def test_a_check_tells_it_of_clusters_alone():
    cluster = ("engine.ray_address=http://head:8265", "engine.output=/mnt/runs")
    for more, told_of in ((cluster, True), ((), False)):
        loaded = load_spec([SPECS / "search.yaml"], ["engine.kind=openrlhf", *more])
        paths = [warning.path for warning in planned_engine(loaded.spec).find_warnings(loaded)]
        assert ("model.path" in paths) is told_of
