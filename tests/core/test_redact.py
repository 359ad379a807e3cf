"""Secrets are struck out of every text, in whatever form it has them."""

from __future__ import annotations

import html
import json
import re
import time
from base64 import b64encode
from itertools import product
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from typer.testing import CliRunner

from rlf.cli import app
from rlf.core.callables import load_callable
from rlf.core.errors import RlfError
from rlf.core.redact import REDACTED, Redactor, strike_environment
from rlf.core.text import describe

SECRETS = [
    "p@ss\"w/o'rd <&> +é\\x\n1",
    "sk-abc/def+ghi==",
    "/////abcd",
    "naïve😀key",
    "a b c d e f",
    "per%2Fcent%key",
    "amp&lt;key;x",
    'x\\\\y\\"z----',
    "????????",
]


def _in_lower_case(text: str) -> str:
    return re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), quote(text, safe=""))


def _as_entities(text: str) -> str:
    return "".join(one if one.isascii() and one.isalnum() else f"&#{ord(one)};" for one in text)


ESCAPES = {
    "html": html.escape,
    "entities": _as_entities,
    "repr": repr,
    "ascii": ascii,
    "bytes": lambda text: repr(text.encode()),
    "json": json.dumps,
    "json of UTF-8": lambda text: json.dumps(text, ensure_ascii=False),
    "json of PHP": lambda text: json.dumps(text).replace("/", "\\/"),
    "json of Go": lambda text: json.dumps(text).replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003E"),
    "url": lambda text: quote(text, safe=""),
    "url in lower case": _in_lower_case,
    "form": quote_plus,
}


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_found_in_every_escape_and_in_escapes_of_escapes(secret: str) -> None:
    redactor = Redactor({"API_KEY": secret})
    for escapes in [
        (),
        *product(ESCAPES, repeat=1),
        *product(ESCAPES, repeat=2),
        ("json",) * 4,
        ("html", "json", "url"),
    ]:
        text = secret
        for escape in escapes:
            text = ESCAPES[escape](text)
        shown = redactor.text(f"before {text} after")
        assert REDACTED in shown, (escapes, text)
        assert shown.startswith("before ") and shown.endswith(" after"), (escapes, shown)
        assert redactor.finds(text)


def test_what_is_no_secret_stays_as_it_is_escaped() -> None:
    redactor = Redactor({"API_KEY": "sk-abc/def+ghi=="})
    for text in ("sk%2Dabc/def ghi&amp;", "abc \\u00e9 &lt; %2F", "C:\\new\\table", "def+ghi"):
        assert redactor.text(text) == text
    assert redactor.text("%20x sk-abc%2fdef+ghi== &amp;y") == f"%20x {REDACTED} &amp;y"


def test_several_secrets_in_one_text_are_each_struck_out() -> None:
    redactor = Redactor({"A_KEY": "first/secret", "B_KEY": "second/secret"})
    text = "first/secret second%2fsecret first&#x2f;secret second/secret"
    assert redactor.text(text) == " ".join([REDACTED] * 4)
    assert redactor.pieces(["fir", "st%2", "Fsecret", " x"]) == [REDACTED, "", "", " x"]


def test_a_long_text_of_escapes_takes_no_long_time() -> None:
    """Compared with itself of a tenth the length: a search that is quadratic takes a hundred times as long."""
    redactor = Redactor({"API_KEY": "/abcdefgh\\/"})

    def taken_s(count: int) -> float:
        started = time.process_time()
        for unit in ("\\", "%25", "&amp;", "%5C", "/abcdefgh"):
            redactor.text(unit * count + "abcdefgh")
        return time.process_time() - started

    taken_s(1_000)
    assert taken_s(50_000) < 50 * max(taken_s(5_000), 0.02)


def test_a_secret_with_a_line_break_at_its_end_is_found_without_it() -> None:
    redactor = Redactor({"API_KEY": "sk-from-a-file\r\n"})
    assert redactor.text("Bearer sk-from-a-file!") == f"Bearer {REDACTED}!"
    coded = b64encode(b"me:sk-from-a-file").decode()
    assert coded not in redactor.text(coded)


@pytest.mark.parametrize("name", ["X-Shop", "Client", "X-Session-Id", "X-Whatever", "X-Api-Key", "Authorization"])
def test_a_header_that_is_written_out_is_secret_whatever_its_name(name: str) -> None:
    redactor = Redactor({}, declared={"target": {"headers": {name: "Bearer open-sesame-1001"}}})
    assert redactor.text("got open-sesame-1001, and 'Bearer open-sesame-1001'").count("sesame") == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Accept", "application/json"),
        ("accept-language", "en-GB,en;q=0.5"),
        ("Content-Type", "application/xml"),
        ("User-Agent", "rlf-of-a-lab/1.0"),
        ("anthropic-version", "2023-06-01"),
        ("X-Api-Version", "2024-05-05"),
        ("HTTP-Referer", "https://lab.example"),
    ],
)
def test_a_header_that_holds_no_secret_by_its_definition_is_shown(name: str, value: str) -> None:
    assert Redactor({}, declared={"headers": {name: value}}).text(f"it says {value}") == f"it says {value}"


IMPORTS = {
    "raised": "raise ImportError(f\"no licence for {os.environ['SHOP_API_KEY']}\")",
    "named": "import importlib\nimportlib.import_module(os.environ['SHOP_API_KEY'])",
    "quoted": "raise ValueError(repr(os.environ['SHOP_API_KEY'] + chr(10)))",
    "exit": "raise SystemExit('bad key ' + os.environ['SHOP_API_KEY'])",
    "panic": "raise BaseException('bad key ' + os.environ['SHOP_API_KEY'])",
    "noted": "fault = KeyError('x')\nfault.add_note('key: ' + os.environ['SHOP_API_KEY'])\nraise fault",
    "grouped": "raise ExceptionGroup('several', [ValueError(os.environ['SHOP_API_KEY'])])",
}


@pytest.mark.parametrize("how", IMPORTS)
def test_an_import_that_fails_does_not_show_the_secret_that_it_names(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "canary/of+a key"
    monkeypatch.setenv("SHOP_API_KEY", secret)
    (tmp_path / "shop.py").write_text(f"import os\n{IMPORTS[how]}\n")
    (tmp_path / "shop.yaml").write_text(
        "name: buy\ndescription: Buys.\ninputSchema: {type: object, properties: {}}\n"
        'target: {kind: python, callable: "shop.py:buy"}\n'
    )
    (tmp_path / "spec.yaml").write_text("name: s\nmodel: {path: builtin:tiny}\ntools: [shop.yaml]\n")
    with pytest.raises(RlfError) as caught:
        load_callable(f"{tmp_path / 'shop.py'}:buy")
    shown = [str(caught.value)]
    for command in (["tools", "test"], ["tools", "test", "--json"], ["tools", "show"], ["check"]):
        file = "spec.yaml" if command == ["check"] else "shop.yaml"
        ran = CliRunner().invoke(app, [*command[:2], str(tmp_path / file), *command[2:]])
        shown.append(ran.output)
    assert "canary" not in " ".join(shown)
    assert REDACTED in shown[0] and REDACTED in shown[1]


def test_the_description_of_an_exception_has_no_secret_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "canary-0001")
    assert describe(ValueError("GET /?key=canary-0001")) == f"ValueError: GET /?key={REDACTED}"
    monkeypatch.setenv("SHOP_API_KEY", "canary-0002")
    assert strike_environment("canary-0001 canary-0002") == f"canary-0001 {REDACTED}"


@pytest.mark.parametrize("kept", [16, 20, 31])
@pytest.mark.parametrize("shape", ["{}", "got {}…", "key='{}'", "[{}] and {}"])
def test_what_is_left_of_a_secret_that_somebody_has_cut_is_struck_out(kept: int, shape: str) -> None:
    secret = "sk-live-0123456789abcdefghijklmn"
    redactor = Redactor({"A_KEY": secret})
    assert redactor.text(shape.replace("{}", secret[:kept])) == shape.replace("{}", REDACTED)


def test_an_ordinary_word_that_a_secret_begins_with_stays() -> None:
    redactor = Redactor({"A_KEY": "postgres-production-4711", "B_KEY": "information"})
    assert redactor.text("postgres, informatics, postgres-prod") == "postgres, informatics, postgres-prod"


@pytest.mark.parametrize("secret", ["sk-live-0123456789abcdef", "password-of-nine"])
@pytest.mark.parametrize(
    "form",
    ["%{:02x}", "%{:02X}", "\\u{:04x}", "\\x{:02x}", "&#{};", "&#x{:x};", "&#{:04};", "%25{:02x}", "\\\\u{:04X}"],
)
def test_a_secret_whose_every_character_is_escaped_is_found(secret: str, form: str) -> None:
    text = "".join(form.format(ord(character)) for character in secret)
    assert Redactor({"A_KEY": secret}).text(f"got {text}, no") == f"got {REDACTED}, no"
