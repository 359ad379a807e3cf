"""Golden calls: what an imported operation sends is what a reference client of OpenAPI sends, or what OpenAPI's own
tables say where the client knows no such body or parameter.

The documents in `openapi/` are written for these tests in the manner of Swagger's Petstore, GitHub and Stripe.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.message
import email.parser
import email.policy
import json
import threading
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
import yaml

from rlf.apps.imports.found import escaped, variables_of
from rlf.apps.imports.openapi import read_operations
from rlf.apps.imports.tools import ImportFiles, ImportRequest, read_source, write_tools
from rlf.core.errors import RlfError
from rlf.core.yaml_text import load_document
from rlf.runs.declared import load_tools
from rlf.tools import Executor, ToolDeclaration
from rlf.types import Outcome, ToolCall, ToolResult

DOCUMENTS = Path(__file__).parent / "openapi"
SECRETS = {
    "SWAGGER_PETSTORE_OPENAPI_3_0_TOKEN": "token-of-a-user",
    "SWAGGER_PETSTORE_OPENAPI_3_0_API_KEY": "key-of-the-store",
    "SWAGGER_PETSTORE_OPENAPI_3_1_API_KEY": "key-of-the-store",
    "SWAGGER_PETSTORE_OPENAPI_3_1_SESSION_API_KEY": "session-of-mine",
    "SWAGGER_PETSTORE_OPENAPI_3_1_CSRF_API_KEY": "no-forgery-here",
    "SWAGGER_PETSTORE_TOKEN": "token-of-a-user",
    "SWAGGER_PETSTORE_API_KEY": "key-of-the-store",
    "STRIPE_API_PASSWORD": b64encode(b"sk_test_1:none").decode(),
}


@dataclass(frozen=True)
class Seen:
    """A request as a server understands it."""

    method: str
    path: str
    query: list[tuple[str, str]] = field(default_factory=list)
    kind: str | None = None
    """The content type, without what differs from one request to the next."""
    body: Any = None
    credentials: dict[str, str] = field(default_factory=dict)


class Echo(ThreadingHTTPServer):
    """A server that keeps what it is asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[Seen] = []
        self.address = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def _keep(self) -> None:
        path, _, query = self.path.partition("?")
        kind = self.headers.get("Content-Type")
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        names = ("authorization", "cookie", "api_key", "x-csrf")
        credentials = {name: self.headers[name] for name in names if name in self.headers}
        plain = kind and kind.split(";")[0]
        seen = Seen(self.command, path, sorted(parse_qsl(query)), plain, _read_body(kind, data), credentials)
        assert isinstance(self.server, Echo)
        self.server.seen.append(seen)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _keep

    def log_message(self, *_: Any) -> None:
        """Prints nothing."""


def _read_body(kind: str | None, data: bytes) -> Any:
    if kind is None:
        return data.decode() or None
    if "json" in kind:
        return json.loads(data)
    if "form-urlencoded" in kind:
        return sorted(parse_qsl(data.decode()))
    if "multipart" not in kind:
        return data.decode()
    whole = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(
        f"Content-Type: {kind}\r\n\r\n".encode() + data
    )
    assert isinstance(whole, email.message.EmailMessage)
    return [_part(part) for part in whole.iter_parts()]


def _part(part: email.message.EmailMessage) -> tuple[str, str, str]:
    name = part.get_param("name", header="content-disposition")
    return str(name), part.get_content_type(), part.get_payload(decode=True).decode()  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def echo() -> Iterator[Echo]:
    server = Echo()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def document_at(name: str, echo: Echo) -> str:
    text = (DOCUMENTS / f"{name}.yaml").read_text()
    return text.replace("ADDRESS", echo.address).replace("HOST", echo.address.removeprefix("http://"))


@dataclass(frozen=True)
class Service:
    """A document, imported."""

    tools: dict[str, ToolDeclaration]
    written: ImportFiles
    files: Path

    def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        async def main() -> ToolResult:
            async with Executor([self.tools[name]]) as executor:
                return await executor.invoke(ToolCall(name, arguments), trajectory_id="t")

        return asyncio.run(main())


@pytest.fixture(scope="module")
def services(echo: Echo, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Service]]:
    """Every document of the folder."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SECRETS.items():
            patch.setenv(name, value)
        found = {}
        for file in sorted(DOCUMENTS.glob("*.yaml")):
            folder = tmp_path_factory.mktemp("imported")
            (folder / "document.yaml").write_text(document_at(file.stem, echo))
            url = f"{echo.address}/api/v3" if file.stem == "petstore_3.0" else None
            request = ImportRequest(str(folder / "document.yaml"), folder / "tools", url=url)
            written = write_tools(read_source("openapi", request), folder / "tools", source="openapi")
            tools = {tool.name: tool for tool in load_tools(written.files)}
            found[file.stem] = Service(tools, written, folder / "tools")
        yield found


@dataclass(frozen=True)
class Case:
    """A call that the reference client can make too."""

    document: str
    operation: str
    arguments: dict[str, Any]
    parameters: dict[str, Any] = field(default_factory=dict)
    data: Any = None
    scheme: str | None = None
    """The credentials that the client is given, by their name in the document."""


PET = {"id": 7, "name": "Rex & co", "photoUrls": ["a", "b"], "category": {"id": 1, "name": "Dogs"}}
ISSUES = {"owner": "o c", "repo": "r&s"}
LONG = "code-security/get-repositories-for-configuration-of-the-organization-and-all-of-its-"
CASES = [
    Case("petstore_3.0", "updatePet", PET, data=PET, scheme="petstore_auth"),
    Case("petstore_3.0", "addPet", PET, data=PET, scheme="petstore_auth"),
    Case("petstore_3.0", "findPetsByStatus", {"status": "sold"}, {"status": "sold"}, scheme="petstore_auth"),
    Case("petstore_3.0", "findPetsByTags", {"tags": ["a b", "c&d"]}, {"tags": ["a b", "c&d"]}, scheme="petstore_auth"),
    Case("petstore_3.0", "getPetById", {"petId": 7}, {"petId": 7}, scheme="api_key"),
    Case("petstore_3.0", "deletePet", {"petId": 7}, {"petId": 7}, scheme="petstore_auth"),
    Case("petstore_3.0", "getInventory", {}, scheme="api_key"),
    Case("petstore_3.0", "placeOrder", {"petId": 7, "complete": True}, data={"petId": 7, "complete": True}),
    Case("petstore_3.0", "createUsersWithListInput", {"body": [{"id": 1}]}, data=[{"id": 1}]),
    Case("petstore_3.0", "loginUser", {"username": "u", "password": "p=1"}, {"username": "u", "password": "p=1"}),
    Case("petstore_3.1", "addPet", {"name": "R", "kind": "cat"}, data={"name": "R", "kind": "cat"}, scheme="api_key"),
    Case("petstore_3.1", "getPetById", {"petId": 7, "fields": ["a", "b"]}, {"petId": 7, "fields": ["a", "b"]}),
    Case("petstore_3.1", "searchPets", {"kinds": ["a", "b"]}, {"kinds": ["a", "b"]}),
    Case("petstore_3.1", "searchPets", {"names": ["a", "b"]}, {"names": ["a", "b"]}),
    Case("petstore_3.1", "searchPets", *[{"filter": {"colour": "red", "age": 3}}] * 2),
    Case("petstore_3.1", "searchPets", *[{"near": {"lat": 1.5}, "page": {"size": 2, "number": 3}}] * 2),
    Case("petstore_3.1", "searchPets", {"is_sold": True}, {"is-sold": True}),
    Case("github", "issues_list-for-repo", *[{**ISSUES, "state": "all", "per_page": 5}] * 2),
    Case("github", "issues_create", {**ISSUES, "title": "T", "labels": ["a"]}, ISSUES, {"title": "T", "labels": ["a"]}),
    Case(
        "github",
        "repos_delete-file",
        {**ISSUES, "path": "a", "message": "m", "sha": "s"},
        {**ISSUES, "path": "a"},
        {"message": "m", "sha": "s"},
    ),
    Case(
        "stripe",
        "PostCustomers",
        {"description": "d e", "tax_exempt": "none"},
        data={"description": "d e", "tax_exempt": "none"},
        scheme="basicAuth",
    ),
    Case("petstore_2.0", "addPet", {"id": 1, "name": "R"}, data={"id": 1, "name": "R"}, scheme="petstore_auth"),
    Case("petstore_2.0", "findPetsByStatus", *[{"status": ["a", "b"], "tags": ["c", "d"]}] * 2, scheme="api_key"),
    Case(
        "petstore_2.0",
        "updatePetWithForm",
        {"petId": 7, "name": "R S", "status": "sold"},
        {"petId": 7, "name": "R S", "status": "sold"},
    ),
]


@pytest.fixture(scope="module")
def references(echo: Echo) -> dict[str, Any]:
    """The reference client of each document."""
    import aiopenapi3
    import httpx2

    found = {}
    for name in {case.document for case in CASES}:
        text = json.dumps(load_document(document_at(name, echo)))
        found[name] = aiopenapi3.OpenAPI.loads(f"{echo.address}/openapi.json", text, session_factory=httpx2.Client)
    return found


def ask_reference(client: Any, case: Case, operation: str) -> None:
    request = client._[operation] if "/" in operation else getattr(client._, operation)
    values = {
        "petstore_auth": "token-of-a-user",
        "api_key": "key-of-the-store",
        "basicAuth": ("sk_test_1", "none"),
    }
    client.authenticate(None)
    if case.scheme is not None:
        client.authenticate(**{case.scheme: values[case.scheme]})
    arguments: dict[str, Any] = {"parameters": case.parameters} if case.parameters else {}
    if case.data is not None:
        arguments["data"] = _as_model(request, case.data)
    request(**arguments)


def _as_model(request: Any, data: Any) -> Any:
    body = getattr(request.operation, "requestBody", None)
    kinds = {} if body is None else body.content
    if "application/json" in kinds or body is None:
        return data
    return next(iter(kinds.values())).schema_.get_type().model_validate(data)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.document}-{case.operation}")
def test_a_call_is_what_the_reference_client_sends(
    case: Case, services: dict[str, Service], references: dict[str, Any], echo: Echo
) -> None:
    operation = case.operation.replace("issues_", "issues/").replace("repos_", "repos/")
    echo.seen.clear()
    result = services[case.document].call(case.operation, case.arguments)
    assert result.outcome is Outcome.OK, result.text
    with contextlib.suppress(Exception):  # what it makes of the answer
        ask_reference(references[case.document], case, operation)
    ours, theirs = echo.seen
    if case.scheme == "petstore_auth":  # the client fetches no token; RFC 6750, section 2.1 says where it stands
        theirs = replace(theirs, credentials={"authorization": "Bearer token-of-a-user"})
    assert ours == theirs


STRIPE = {"authorization": f"Basic {SECRETS['STRIPE_API_PASSWORD']}"}
DERIVED: list[tuple[str, str, dict[str, Any], Seen]] = [
    # OpenAPI 3.0.4, "Style Examples", deepObject; Stripe's own way inwards: a list's items by their index.
    (
        "stripe",
        "GetCustomers",
        {"created": {"gt": 5, "lte": 9}, "expand": ["a.b", "c"], "limit": 3},
        Seen(
            "GET",
            "/v1/customers",
            [("created[gt]", "5"), ("created[lte]", "9"), ("expand[0]", "a.b"), ("expand[1]", "c"), ("limit", "3")],
            credentials=STRIPE,
        ),
    ),
    ("stripe", "GetCustomers", {"created": 5}, Seen("GET", "/v1/customers", [("created", "5")], credentials=STRIPE)),
    (
        "stripe",
        "PostCustomers",
        {"address": {"city": "Ulm"}, "metadata": {"a b": "1&2"}, "expand": ["x"]},
        Seen(
            "POST",
            "/v1/customers",
            kind="application/x-www-form-urlencoded",
            body=[("address[city]", "Ulm"), ("expand[0]", "x"), ("metadata[a b]", "1&2")],
            credentials=STRIPE,
        ),
    ),
    # OpenAPI 3.0.4, "Request Body Object", required: a body that is not required may be absent.
    ("stripe", "PostCustomers", {}, Seen("POST", "/v1/customers", credentials=STRIPE)),
    ("stripe", "DeleteCustomersCustomer", {"customer": "c_1"}, Seen("DELETE", "/v1/customers/c_1", credentials=STRIPE)),
    ("github", "issues_lock", {**ISSUES, "issue_number": 7}, Seen("PUT", "/repos/o%20c/r&s/issues/7/lock")),
    ("petstore_3.0", "placeOrder", {}, Seen("POST", "/api/v3/store/order")),
    (
        "stripe",
        "PostSubscriptions",
        {"customer": "c", "items": [{"price": "p", "quantity": 2}]},
        Seen(
            "POST",
            "/v1/subscriptions",
            kind="application/x-www-form-urlencoded",
            body=[("customer", "c"), ("items[0][price]", "p"), ("items[0][quantity]", "2")],
            credentials=STRIPE,
        ),
    ),
    # OpenAPI 3.0.4, "Special Considerations for multipart Content", and "Server Object" of an operation.
    (
        "stripe",
        "PostFiles",
        {"file": "a,b\nc", "purpose": "identity_document"},
        Seen(
            "POST",
            "/files/v1/files",
            kind="multipart/form-data",
            body=[("file", "application/octet-stream", "a,b\nc"), ("purpose", "text/plain", "identity_document")],
            credentials=STRIPE,
        ),
    ),
    (
        "petstore_3.1",
        "addPhoto",
        {"file": "data", "about": {"width": 3}},
        Seen(
            "POST",
            "/uploads/photos",
            [("key", "key-of-the-store")],
            "multipart/form-data",
            [("file", "application/octet-stream", "data"), ("about", "application/json", '{"width": 3}')],
        ),
    ),
    # OpenAPI 3.1.1, "Media Type Object" and "Considerations for File Uploads": text of another type is sent as it is.
    (
        "github",
        "repos_upload-release-asset",
        {**ISSUES, "release_id": 7, "name": "a.txt", "body": "text"},
        Seen(
            "POST",
            "/uploads/repos/o%20c/r&s/releases/7/assets",
            [("name", "a.txt")],
            "application/octet-stream",
            "text",
        ),
    ),
    ("github", "markdown_render-raw", {"body": "# T"}, Seen("POST", "/markdown/raw", kind="text/plain", body="# T")),
    (
        "petstore_3.1",
        "patchPet",
        {"petId": 7, "note": "of the query", "name": "R", "body_note": "of the body"},
        Seen(
            "PATCH",
            "/v31/pet/7",
            [("key", "key-of-the-store"), ("note", "of the query")],
            "application/merge-patch+json",
            {"name": "R", "note": "of the body"},
        ),
    ),
    # OpenAPI 3.1.1, "Security Requirement Object": all schemes of one item.
    (
        "petstore_3.1",
        "copyPet",
        {"petId": 7},
        Seen("POST", "/v31/pet/7/copy", credentials={"cookie": "sid=session-of-mine", "x-csrf": "no-forgery-here"}),
    ),
    # Swagger 2.0, "Parameter Object", collectionFormat (csv unless it is said) and formData with a file.
    (
        "petstore_2.0",
        "findPetsByStatus",
        {"status": ["a"], "ids": [1, 2]},
        Seen(
            "GET",
            "/v2/pet/findByStatus",
            [("ids", "1,2"), ("status", "a")],
            credentials={"api_key": "key-of-the-store"},
        ),
    ),
    (
        "petstore_2.0",
        "uploadFile",
        {"petId": 7, "file": "data", "additionalMetadata": "m"},
        Seen(
            "POST",
            "/v2/pet/7/uploadImage",
            kind="multipart/form-data",
            body=[("additionalMetadata", "text/plain", "m"), ("file", "application/octet-stream", "data")],
        ),
    ),
]


@pytest.mark.parametrize(("document", "name", "arguments", "expected"), DERIVED, ids=lambda value: str(value)[:30])
def test_a_call_is_what_openapi_says(
    document: str, name: str, arguments: dict[str, Any], expected: Seen, services: dict[str, Service], echo: Echo
) -> None:
    echo.seen.clear()
    result = services[document].call(name, arguments)
    assert result.outcome is Outcome.OK, result.text
    assert echo.seen == [expected]


def test_no_operation_is_lost_or_left_out(services: dict[str, Service], echo: Echo) -> None:
    for name, service in services.items():
        paths = load_document(document_at(name, echo))["paths"]
        if name == "petstore_3.1":
            paths["/photos"] = {"post": {}}
        offered = [
            method for item in paths.values() for method in item if method in ("get", "post", "put", "patch", "delete")
        ]
        assert (name, len(service.tools), service.written.left_out) == (name, len(offered), ())


def test_names_that_collide_after_cutting_stay_apart(services: dict[str, Service]) -> None:
    cut = sorted(name for name in services["github"].tools if name.startswith("code-security"))
    whole = LONG.replace("/", "_")
    assert cut == sorted([whole[:64], f"{whole[:62]}_2"])
    assert any(
        note.endswith("names must be unique and have at most 64 characters")
        for note in services["github"].written.notes
    )


def test_a_shell_can_set_every_variable(services: dict[str, Service]) -> None:
    names = {name for service in services.values() for name in service.written.variables}
    assert names == set(SECRETS)
    assert all(name.isidentifier() and name.isascii() for name in names)


def test_the_choice_between_credentials_is_reported(services: dict[str, Service]) -> None:
    assert services["petstore_3.0"].written.notes == (
        "credentials: api_key, where the document also allows petstore_auth (1 operation)",
    )
    assert (
        "credentials: none, where the document also allows api_key (1 operation)"
        in services["petstore_3.1"].written.notes
    )
    assert services["stripe"].written.notes == (
        "credentials: basicAuth, where the document also allows bearerAuth (5 operations)",
        "STRIPE_API_PASSWORD holds the base64 of `user:password`",
    )


def test_the_prompt_holds_no_keyword_that_is_for_people(services: dict[str, Service]) -> None:
    for service in services.values():
        for tool in service.tools.values():
            said = json.dumps(tool.input_schema)
            assert not any(f'"{key}"' in said for key in ("example", "examples", "xml", "nullable", "readOnly", "$ref"))
            assert '"x-' not in said
    assert services["petstore_3.0"].tools["addPet"].description == "Add a pet to the store."
    assert services["petstore_3.1"].tools["addPet"].description == "Add a pet. It is there at once."
    described = services["petstore_3.0"].tools["findPetsByStatus"].description
    assert described == "Finds pets by status. Several states can be given, with commas between them"
    new = services["petstore_3.1"].tools["addPet"].input_schema
    assert (list(new["properties"]), new["required"]) == (["name", "kind", "age"], ["name", "kind"])


def openapi(tmp_path: Path, operation: dict[str, Any], path: str = "/a", **more: Any) -> ImportFiles:
    said = {"openapi": "3.1.0", "info": {"title": "A"}, "servers": [{"url": "http://127.0.0.1:9"}], **more}
    (tmp_path / "a.json").write_text(json.dumps({**said, "paths": {path: {"get": {"operationId": "a", **operation}}}}))
    request = ImportRequest(str(tmp_path / "a.json"), tmp_path / "tools")
    return write_tools(read_source("openapi", request), tmp_path / "tools", source="openapi", force=True)


def target_of(written: ImportFiles) -> dict[str, Any]:
    return dict(yaml.safe_load(written.files[0].read_text())["target"])


SCHEMES = {
    "components": {
        "securitySchemes": {
            "q": {"type": "apiKey", "in": "query", "name": "key"},
            "h": {"type": "apiKey", "in": "header", "name": "X-Key"},
            "d": {"type": "http", "scheme": "digest"},
            "o": {"type": "openIdConnect", "openIdConnectUrl": "https://a"},
        }
    }
}
Q, H = "${oc.env:A_Q_API_KEY}", "${oc.env:A_H_API_KEY}"


@pytest.mark.parametrize(
    ("security", "headers", "query"),
    [
        ([], None, {}),
        ([{}], None, {}),
        ([{"q": []}], None, {"key": Q}),
        ([{"h": []}], {"X-Key": H}, {}),
        ([{"q": [], "h": []}], {"X-Key": H}, {"key": Q}),
        ([{"d": []}, {"h": []}], {"X-Key": H}, {}),
        ([{"q": [], "d": []}, {"o": ["read"]}], {"Authorization": "Bearer ${oc.env:A_TOKEN}"}, {}),
        ([{"h": []}, {}], None, {}),
    ],
)
def test_an_operation_is_sent_the_credentials_that_it_asks_for_and_no_other(
    security: list[Any], headers: dict[str, str] | None, query: dict[str, str], tmp_path: Path
) -> None:
    target = target_of(openapi(tmp_path, {"security": security}, **SCHEMES, security=[{"q": []}]))
    assert (target.get("headers"), target["query"]) == (headers, query)


def test_an_operation_without_a_list_of_its_own_is_sent_those_of_the_document(tmp_path: Path) -> None:
    assert target_of(openapi(tmp_path, {}, **SCHEMES, security=[{"h": []}]))["headers"] == {"X-Key": H}
    assert "headers" not in target_of(openapi(tmp_path, {}, **SCHEMES))


@pytest.mark.parametrize("names", [["d"], ["no-such"]])
def test_credentials_that_no_file_can_hold_leave_an_operation_out(names: list[str], tmp_path: Path) -> None:
    with pytest.raises(RlfError, match=f"it needs the credentials {names[0]}, which a tool file cannot hold"):
        openapi(tmp_path, {"security": [{name: [] for name in names}]}, **SCHEMES)


VALUES = {"list": [3, "a,b"], "object": {"R": 100, "G": "a/b"}}


@pytest.mark.parametrize(
    ("style", "explode", "kind", "path"),
    [
        ("simple", False, "list", "/p/3,a,b"),
        ("simple", True, "list", "/p/3,a,b"),
        ("simple", False, "object", "/p/R,100,G,a%2Fb"),
        ("simple", True, "object", "/p/R=100,G=a%2Fb"),
        ("label", False, "list", "/p/.3,a,b"),
        ("label", True, "list", "/p/.3.a,b"),
        ("label", False, "object", "/p/.R,100,G,a%2Fb"),
        ("label", True, "object", "/p/.R=100.G=a%2Fb"),
        ("matrix", False, "list", "/p/;v=3,a,b"),
        ("matrix", True, "list", "/p/;v=3;v=a,b"),
        ("matrix", False, "object", "/p/;v=R,100,G,a%2Fb"),
        ("matrix", True, "object", "/p/;R=100;G=a%2Fb"),
    ],
)
def test_path_parameters_follow_the_table_of_styles(
    style: str, explode: bool, kind: str, path: str, tmp_path: Path, echo: Echo
) -> None:
    """OpenAPI 3.1.1, "Style Examples"."""
    schema = {"type": "array" if kind == "list" else "object"}
    parameter = {"name": "v", "in": "path", "required": True, "style": style, "explode": explode, "schema": schema}
    written = openapi(tmp_path, {"parameters": [parameter]}, "/p/{v}", servers=[{"url": echo.address}])
    echo.seen.clear()
    service = Service({tool.name: tool for tool in load_tools(written.files)}, written, tmp_path)
    assert service.call("a", {"v": VALUES[kind]}).outcome is Outcome.OK
    assert echo.seen[0].path == path


def test_a_parameter_described_by_content_is_sent_as_json(tmp_path: Path, echo: Echo) -> None:
    """OpenAPI 3.1.1, "Fixed Fields for use with content"."""
    parameter = {"name": "v", "in": "query", "content": {"application/json": {"schema": {"type": "object"}}}}
    written = openapi(tmp_path, {"parameters": [parameter]}, servers=[{"url": echo.address}])
    echo.seen.clear()
    service = Service({tool.name: tool for tool in load_tools(written.files)}, written, tmp_path)
    service.call("a", {"v": {"a": [1, 2]}})
    assert echo.seen[0].query == [("v", '{"a":[1,2]}')]


@pytest.mark.parametrize(
    "name", ["filter", "range", "in", "self", "response", "2fa", "a-b", "a[]", "for", "with", "x y"]
)
def test_an_argument_of_any_name_reaches_the_service_under_that_name(name: str, tmp_path: Path, echo: Echo) -> None:
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}}]
    written = openapi(tmp_path, {"parameters": parameters}, servers=[{"url": echo.address}])
    tool = load_tools(written.files)[0]
    (argument,) = tool.input_schema["properties"]
    service = Service({tool.name: tool}, written, tmp_path)
    echo.seen.clear()
    service.call("a", {argument: "v"})
    service.call("a", {})
    assert [seen.query for seen in echo.seen] == [[(name, "v")], []]


def test_a_document_that_multiplies_itself_is_left_out(tmp_path: Path) -> None:
    schemas: dict[str, Any] = {"s0": {"type": "object", "properties": {"a": {"type": "string"}}}}
    for number in range(1, 40):
        ref = {"$ref": f"#/components/schemas/s{number - 1}"}
        schemas[f"s{number}"] = {"type": "object", "properties": {"a": ref, "b": ref}}
    parameters = [{"name": "v", "in": "query", "schema": {"$ref": "#/components/schemas/s39"}}]
    document = {
        "openapi": "3.1.0",
        "servers": [{"url": "http://127.0.0.1:9"}],
        "components": {"schemas": schemas},
        "paths": {"/a": {"get": {"parameters": parameters}}, "/b": {"get": {}}},
    }
    (tmp_path / "a.json").write_text(json.dumps(document))
    found = read_source("openapi", ImportRequest(str(tmp_path / "a.json"), tmp_path))
    assert [tool["name"] for tool in found.tools] == ["get__b"]
    assert "its schemas have more than 20,000 values" in found.left_out[0]


OTHERS = [None, 1, "x", [], {}, [1], {"a": 1}, [[]], {"$ref": "#/paths"}, {"$ref": "#/x%"}, True, [None, {}]]


def parts_of(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every mapping and list within a value, with each of its keys."""
    named = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in list(named):
        yield value, key
        yield from parts_of(child)


@pytest.mark.parametrize("name", sorted(file.stem for file in DOCUMENTS.glob("*.yaml")))
def test_a_document_with_a_part_of_another_type_is_read_or_refused(name: str) -> None:
    text = (DOCUMENTS / f"{name}.yaml").read_text()
    document = load_document(text.replace("ADDRESS", "http://a").replace("HOST", "a"))
    tried = 0
    for number, (whole, key) in enumerate(list(parts_of(document))):
        kept = whole[key]
        for other in OTHERS[number % 5 :: 5]:
            whole[key] = other
            with contextlib.suppress(RlfError):
                found = read_operations(document, base_url="http://a")
                tried += all(isinstance(tool["name"], str) for tool in found.tools)
        whole[key] = kept
    assert tried > 100


def test_the_nearest_server_is_asked_and_a_relative_one_lies_beside_the_document() -> None:
    get = {"operationId": "own", "servers": [{"url": "https://own/v1/"}]}
    near = {"servers": [{"url": "../near"}], "get": {"operationId": "near"}, "delete": get}
    document = {"openapi": "3.0.0", "servers": [{"url": "/all"}], "paths": {"/a": near, "/b": {"get": {}}}}
    found = read_operations(document, source="http://host:8/docs/v2/openapi.json")
    assert [tool["target"]["url"] for tool in found.tools] == [
        "http://host:8/docs/near/a",
        "https://own/v1/a",
        "http://host:8/all/b",
    ]
    elsewhere = read_operations(document, base_url="http://mine/x/")
    assert {tool["target"]["url"] for tool in elsewhere.tools} == {"http://mine/x/a", "http://mine/x/b"}


@pytest.mark.parametrize(
    ("address", "written", "variable"),
    [
        ("https://me:hunter2@host/v1", "https://me:${oc.env:A_PASSWORD}@host/v1/a", "A_PASSWORD"),
        ("https://sk_live_4711:@host", "https://${oc.env:A_USER}:@host/a", "A_USER"),
        ("https://sk_live_4711@host:8/", "https://${oc.env:A_USER}@host:8/a", "A_USER"),
    ],
)
@pytest.mark.parametrize("is_given", [False, True], ids=["in the document", "with --url"])
def test_credentials_in_an_address_are_not_copied(address: str, written: str, variable: str, is_given: bool) -> None:
    document = {"openapi": "3.0.0", "info": {"title": "A"}, "paths": {"/a": {"get": {}}}}
    document |= {} if is_given else {"servers": [{"url": address}]}
    found = read_operations(document, base_url=address if is_given else None)
    assert escaped(found.tools[0]["target"]["url"]) == written
    assert variables_of(found.tools) == [variable]
    assert [variable in note for note in found.notes] == [True]


def test_a_password_in_a_given_address_may_be_a_variable() -> None:
    document = {"openapi": "3.0.0", "paths": {"/a": {"get": {}}}}
    found = read_operations(document, base_url="https://me:${oc.env:MINE}@host")
    assert (escaped(found.tools[0]["target"]["url"]), found.notes) == ("https://me:${oc.env:MINE}@host/a", [])


def test_fields_that_an_optional_body_needs_come_together() -> None:
    schema = {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    post = {"requestBody": {"content": {"application/json": {"schema": schema}}}}
    document = {"openapi": "3.0.0", "paths": {"/a": {"post": post}}}
    (tool,) = read_operations(document, base_url="http://mine").tools
    declared = ToolDeclaration.model_validate(tool)
    assert declared.input_schema["dependentRequired"] == {"b": ["a"]}
    assert "required" not in declared.input_schema
