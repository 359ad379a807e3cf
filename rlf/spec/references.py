"""The values of `${...}`, by OmegaConf: other keys, `${oc.env:NAME}` and OmegaConf's other resolvers.

The only module of rlf that knows OmegaConf, whose import takes longer than reading a spec: it is loaded where a text
has such a reference.
"""

from __future__ import annotations

import re
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import GrammarParseError, OmegaConfBaseException

from rlf.core.mistakes import in_our_words
from rlf.spec.nodes import KeyPath, UnresolvedError


class References:
    """The values of a mapping, in which texts refer to each other and to the environment."""

    def __init__(self, values: dict[str, Any]) -> None:
        config = OmegaConf.create(_escape_unparsable(values))  # one text that cannot be parsed would refuse them all
        assert isinstance(config, DictConfig), f"a config of {type(values)}"
        self._config = config

    def value(self, path: KeyPath, text: str) -> Any:
        """The value of the text at a path. Raises UnresolvedError."""
        found: Any = self._config
        try:
            OmegaConf.create({"text": text})
            for key in path:
                found = found[key]
            return OmegaConf.to_container(found, resolve=True) if OmegaConf.is_config(found) else found
        except OmegaConfBaseException as error:
            raise UnresolvedError(_explain_error(error, text)) from error


def _escape_unparsable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _escape_unparsable(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_escape_unparsable(child) for child in value]
    if not isinstance(value, str) or "${" not in value:
        return value
    try:
        OmegaConf.create({"text": value})
    except GrammarParseError:
        return None
    return value


_KEY_OF_SPEC = re.compile(r"[a-z_]+\.[a-z_.]+")


def _explain_error(error: OmegaConfBaseException, text: str) -> str:
    message = str(error).split("\n")[0]
    ours = in_our_words("variables", text)
    if ours != text and "Environment variable" not in message and "Recursive" not in message:
        key = re.search(r"Interpolation key '(.*?)' not found", message)
        if key is None or not _KEY_OF_SPEC.fullmatch(key[1]):
            what = "it names no key of the spec" if key else "variables of the environment are written otherwise here"
            return f"{what}. For a variable of the environment, write `{ours}`."
    if found := re.search(r"Environment variable '(.*)' not found", message):
        name = found[1]
        return f"the environment variable {name} is not set. Set it, or write ${{oc.env:{name},default}}."
    if found := re.search(r"Interpolation key '(.*?)' not found", message):
        return f"the spec has no {found[1]!r}. Write the key's whole path, e.g. ${{train.steps}}."
    if found := re.search(r"Unsupported interpolation type (\S+)", message):
        return f"there is no resolver {found[1]!r} (known: oc.env, oc.decode, oc.select). Write e.g. ${{oc.env:NAME}}."
    if "Recursive interpolation" in message:
        return "it refers to itself, directly or through others. Write one of the values out."
    if isinstance(error, GrammarParseError):
        return r"it is not closed, or no key alone; nothing is calculated. Write ${key}, or \${ for the characters."
    return f"{message}. Check it against OmegaConf's grammar."
