"""No real chat template is taken for two formats, and each family's is taken for its own."""

from importlib.resources import files
from importlib.util import find_spec

import pytest

from rlf.chat import FORMATS

OWN = {"glm4moe": "glm4", "gptoss": "gpt_oss", "lfm2_2_5": "pythonic", "qwen3": "hermes", "qwen2_5": "hermes"}


def formats_of(template):
    return [name for name in FORMATS.names() if FORMATS.get(name).matches(template) is not None]


def test_every_real_template_is_of_one_format_at_most(trl_template):
    folder = files("trl").joinpath("chat_templates") if find_spec("trl") else None
    names = [file.name.removesuffix(".jinja") for file in folder.iterdir()] if folder else ["any"]
    found = {name: formats_of(trl_template(name)) for name in names if name != "README.md"}
    assert len(found) > 50
    assert {name: formats for name, formats in found.items() if len(formats) > 1} == {}


@pytest.mark.parametrize("name", OWN)
def test_a_familys_template_is_of_its_format(trl_template, name):
    assert formats_of(trl_template(name)) == [OWN[name]]


@pytest.mark.parametrize("name", ["search_r1", "react", "code_fence"])
def test_a_format_of_bare_text_is_chosen_by_name_only(name):
    assert FORMATS.get(name).by_name
    assert FORMATS.get(name).matches("<search> Action: ```python <answer>") is None
