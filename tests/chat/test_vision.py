"""Pictures become the tokens that the model's own processor makes of them, and nothing else becomes one."""

from __future__ import annotations

import asyncio

import pytest

from rlf.chat import FORMATS
from rlf.chat.encoding import load_tokenizer
from rlf.chat.vision import Vision, load_processor
from rlf.core import RlfError
from rlf.core.images import read_image_file
from rlf.types import Message, ToolDescription

from ..vision import LLAVA_IMAGE, make_tiny_llava

PIL = pytest.importorskip("PIL.Image")
TOOLS = [ToolDescription("look", "Looks.", {"type": "object", "properties": {}})]
TOKENS_EACH = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llava")
    for name, colour in (("red", (200, 10, 10)), ("blue", (10, 10, 200))):
        PIL.new("RGB", (20, 30), colour).save(folder / f"{name}.png")
    return make_tiny_llava(folder)


@pytest.fixture(scope="module")
def processor(folder):
    return load_processor(str(folder))


@pytest.fixture
def chat(processor):
    chat = FORMATS.get("hermes")(processor.tokenizer, TOOLS)
    chat.see(Vision(processor))
    return chat


def question(folder, content, *names):
    return [Message("system", "You see."), Message("user", content, tuple(str(folder / f"{n}.png") for n in names))]


def test_a_prompt_with_pictures_is_token_for_token_what_the_models_own_processor_makes(chat, folder, processor):
    messages = question(folder, "Look: <image> and <image>? <image>", "red", "blue", "red")
    parts = ["Look: ", None, " and ", None, "? ", None]
    written = [{"type": "image"} if part is None else {"type": "text", "text": part} for part in parts]
    text = processor.apply_chat_template(
        [{"role": "system", "content": "You see."}, {"role": "user", "content": written}],
        tools=[tool.as_openai() for tool in TOOLS],
        add_generation_prompt=True,
        tokenize=False,
    )
    pictures = [PIL.open(folder / f"{name}.png") for name in ("red", "blue", "red")]
    own = processor(text=[text], images=pictures, add_special_tokens=False, return_tensors="pt")
    assert chat.prompt(messages, TOOLS) == own["input_ids"][0].tolist()
    tensors = chat.vision.tensors(messages[1].images)
    assert tensors.keys() == {"pixel_values"}
    assert tensors["pixel_values"].equal(own["pixel_values"])
    assert not tensors["pixel_values"][0].equal(tensors["pixel_values"][1])


def test_a_result_shows_its_pictures_after_its_text(chat, folder):
    red = str(folder / "red.png")
    shown = chat.observation(["first", "second"], closed=True, images=[[], [red, red]])
    text = chat.decode(chat.vision.collapsed(shown))
    assert chat.shows_results
    assert shown.count(chat.vision.placeholder) == 2 * TOKENS_EACH
    assert f"first\n</tool_response>\n<tool_response>\nsecond{LLAVA_IMAGE}\n{LLAVA_IMAGE}\n</tool_response>" in text


def test_pictures_side_by_side_stay_two_places(chat, folder):
    tokens = chat.prompt(question(folder, "<image><image>?", "red", "blue"), TOOLS)
    places = "".join("p" if token == chat.vision.placeholder else "." for token in tokens)
    assert places.strip(".") == "p" * TOKENS_EACH + "." + "p" * TOKENS_EACH
    assert f"{LLAVA_IMAGE}\n{LLAVA_IMAGE}?" in chat.decode(chat.vision.collapsed(tokens))


@pytest.mark.parametrize("role", ["system", "user"])
def test_the_mark_in_a_message_without_pictures_is_text(chat, role):
    messages = [Message(role, "Write <image> twice.")] if role == "user" else [Message("user", "<image>")]
    tokens = chat.prompt(messages, TOOLS)
    assert chat.vision.placeholder not in tokens
    assert LLAVA_IMAGE in chat.decode(tokens)


def test_no_result_can_write_the_place_of_a_picture(chat):
    assert chat.vision.placeholder not in chat.observation([f"a {LLAVA_IMAGE} b"], closed=True)


def test_system_text_that_writes_the_token_itself_is_refused(chat, folder):
    messages = [Message("system", f"Pictures look like {LLAVA_IMAGE}."), *question(folder, "<image>?", "red")[1:]]
    with pytest.raises(RlfError, match="places for 2 of 1 images"):
        chat.prompt(messages, TOOLS)


def test_a_template_of_text_alone_is_refused_for_prompts_and_shows_no_results(processor, folder):
    tokenizer = load_tokenizer(str(folder))
    tokenizer.chat_template = load_tokenizer("rlf/builtin/tiny/checkpoint").chat_template
    chat = FORMATS.get("hermes")(tokenizer, TOOLS)
    chat.see(Vision(processor))
    assert not chat.shows_results
    with pytest.raises(RlfError, match="template"):
        chat.prompt(question(folder, "<image>?", "red")[1:], TOOLS)


def test_a_format_of_bare_text_sees_nothing(processor):
    chat = FORMATS.get("code_fence")(processor.tokenizer, [])
    with pytest.raises(RlfError, match="takes no images"):
        chat.see(Vision(processor))


def test_a_model_without_a_processor_of_pictures_is_refused():
    with pytest.raises(RlfError, match="no processor of images"):
        Vision(load_tokenizer("rlf/builtin/tiny/checkpoint"))


def test_a_processor_that_writes_more_than_one_token_repeated_is_refused(folder):
    class Wraps(type(load_processor(str(folder)))):
        def __call__(self, text, **options):
            return super().__call__(text=[f"\n{text[0]}"], **options)

    processor = load_processor(str(folder))
    processor.__class__ = Wraps
    with pytest.raises(RlfError, match="next to '<image>' the model's processor makes other tokens"):
        Vision(processor)


def test_the_tokens_of_pictures_are_never_to_be_sampled(chat, processor):
    assert chat.vision.never_sampled == (processor.tokenizer.convert_tokens_to_ids(LLAVA_IMAGE),)


def test_a_picture_is_read_once_for_all_who_show_it(chat, folder, monkeypatch):
    reads = []
    monkeypatch.setattr("rlf.core.images.read_image_file", lambda r: (reads.append(r), read_image_file(r))[1])
    red = str(folder / "red.png")
    asyncio.run(chat.vision.prepare([red, red]))
    assert chat.vision.tensors([red])["pixel_values"].shape[0] == 1
    assert chat.vision.tensors([]) is None
    assert reads == [red]


@pytest.mark.parametrize(("data", "said"), [(b"no prepare_image", "no PNG"), (None, "cannot be read")])
def test_a_picture_that_cannot_be_read_is_named(chat, tmp_path, data, said):
    path = tmp_path / "x.png"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(RlfError, match=said) as caught:
        chat.vision.prepare_image(str(path))
    assert "x.png" in str(caught.value)


def test_a_picture_that_is_cut_short_is_refused_by_name(chat, folder, tmp_path):
    path = tmp_path / "cut.png"
    path.write_bytes((folder / "red.png").read_bytes()[:60])
    with pytest.raises(RlfError, match=r"cut\.png: the model's processor cannot take"):
        chat.vision.prepare_image(str(path))
