"""Tokens to text and back."""

import asyncio
import json
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from workloads.model.config import ModelError
from workloads.serve.completion import Delta, Token
from workloads.serve.text import Text, TextError, Writer, write

# A system message, thinking, and a refusal, as the templates of published Qwen3 models have them.
QWEN_LIKE = """
{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(last=messages|length - 1) %}
{%- for message in messages %}
    {%- if message.role == "user" %}
        {{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == "assistant" %}
        {%- if loop.index0 == ns.last %}
            {{- raise_exception('the last message is mine') }}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' + message.content.split('</think>')[-1].lstrip('\\n') }}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- 'no' }}{%- endif %}
{%- endif %}
"""


@pytest.fixture(scope="module")
def tokenizer(tokenizer_json):
    return Tokenizer.from_file(str(tokenizer_json))


@pytest.fixture
def folder(tiny_folder, tmp_path):
    return shutil.copytree(tiny_folder, tmp_path / "model")


def configure(folder, **changes):
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def written(tokenizer, ids, stops=()):
    writer = Writer(tokenizer, stops)
    pieces = [writer.push(i) for i in ids]
    return [*pieces, "" if writer.stopped else writer.finish()]


@given(ids=st.lists(st.integers(0, 319), max_size=30))
def test_the_pieces_of_any_tokens_join_to_the_text_of_all(ids, tokenizer):
    """Any tokens: also bytes that are no character, in any order."""
    assert "".join(written(tokenizer, ids)) == tokenizer.decode(ids)


@given(text=st.text(max_size=20))
def test_no_piece_holds_half_a_character(text, tokenizer):
    pieces = written(tokenizer, tokenizer.encode(text, add_special_tokens=False).ids)
    assert "".join(pieces) == text
    assert "\ufffd" not in "".join(pieces) or "\ufffd" in text


def test_a_character_of_several_tokens_comes_whole_and_at_once(tokenizer):
    ids = tokenizer.encode("🙂🦜").ids
    pieces = [piece for piece in written(tokenizer, ids) if piece]
    assert len(ids) > len(pieces) == 2
    assert pieces == ["🙂", "🦜"]


def test_bytes_that_never_become_a_character_are_told_at_the_end(tokenizer):
    ids = tokenizer.encode("🦜").ids[:-1]
    assert len(ids) >= 1
    assert written(tokenizer, ids)[-1].startswith("\ufffd")


@given(
    text=st.text(alphabet="ab<|", max_size=25),
    stops=st.lists(st.text(alphabet="ab<|", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_text_ends_before_the_first_stop_string_and_nothing_more_is_lost(text, stops, tokenizer):
    """One character a token, so a stop string always spans several."""
    ids = [tokenizer.token_to_id(letter) for letter in text]
    # The stop whose end comes first is seen first; of those, the one that began first.
    ends = [(text.find(s) + len(s), text.find(s)) for s in stops if s in text]
    first_end = min((end for end, _ in ends), default=None)
    expected = text if first_end is None else text[: min(b for e, b in ends if e == first_end)]
    pieces = []
    writer = Writer(tokenizer, stops)
    for i in ids:
        pieces.append(writer.push(i))
        if writer.stopped:
            break
    else:
        pieces.append(writer.finish())
    assert "".join(pieces) == expected
    assert writer.stopped == (first_end is not None)


class Tokens:
    """An engine's stream that knows whether it was closed."""

    def __init__(self, *tokens):
        self._tokens, self.closed, self.read = tokens, False, 0

    async def __call__(self):
        try:
            for token in self._tokens:
                self.read += 1
                yield token
        finally:
            self.closed = True


def deltas_of(tokens, tokenizer, stops=()):
    async def run():
        return [delta async for delta in write(tokens(), tokenizer, stops)]

    return asyncio.run(run())


def test_a_stop_string_ends_the_stream_and_gives_the_row_back(tokenizer):
    ids = tokenizer.encode("xyzq", add_special_tokens=False).ids
    tokens = Tokens(*[Token(i, None) for i in ids * 9])
    deltas = deltas_of(tokens, tokenizer, ["zqx"])
    assert "".join(delta.text for delta in deltas) == "xy"
    assert deltas[-1].finish_reason == "stop"
    assert deltas[-1].tokens == tokens.read == 5
    assert tokens.closed


def test_the_end_token_counts_and_has_no_text(tokenizer):
    a = tokenizer.token_to_id("a")
    deltas = deltas_of(Tokens(Token(a, None), Token(a, "stop")), tokenizer)
    assert deltas == [Delta("a", 1, None), Delta("", 2, "stop")]


def test_a_held_back_beginning_of_a_stop_string_comes_with_the_last_token(tokenizer):
    a, b = tokenizer.token_to_id("a"), tokenizer.token_to_id("b")
    deltas = deltas_of(Tokens(Token(a, None), Token(b, "length")), tokenizer, ["abc"])
    assert deltas == [Delta("ab", 2, "length")]


MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi 你"}]
CHATML = (
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi 你<|im_end|>\n"
    "<|im_start|>assistant\n"
)


def rendered(text, messages=MESSAGES):
    return text.tokenizer.decode(text.encode_chat(messages), skip_special_tokens=False)


def test_our_exports_speak_chatml_with_its_markers_as_single_tokens(tiny_folder):
    text = Text(tiny_folder)
    assert rendered(text) == CHATML
    assert text.encode_chat(MESSAGES)[0] == text.tokenizer.token_to_id("<|im_start|>")


def test_a_template_like_those_of_published_models_is_understood(folder):
    configure(folder, chat_template=QWEN_LIKE)
    text = Text(folder)
    assert rendered(text) == CHATML
    with pytest.raises(TextError, match="refuses the messages: the last message is mine"):
        text.encode_chat([*MESSAGES, {"role": "assistant", "content": "x"}])


def test_a_template_is_found_wherever_folders_keep_it(folder):
    named = [
        {"name": "tool_use", "template": "tools"},
        {"name": "default", "template": "{{ messages[0].content }}{{ eos_token }}"},
    ]
    configure(folder, chat_template=named, eos_token={"content": "<|im_end|>"})
    assert rendered(Text(folder)) == "Be brief.<|im_end|>"
    (folder / "chat_template.jinja").write_text("file: {{ messages[1].content }}")
    assert rendered(Text(folder)) == "file: Hi 你"


def test_a_model_without_a_template_takes_no_chat(folder):
    configure(folder, chat_template=None)
    with pytest.raises(TextError, match="no chat template; use /v1/completions"):
        Text(folder).encode_chat(MESSAGES)


def test_a_template_cannot_reach_out_of_its_sandbox(folder):
    configure(folder, chat_template="{{ messages.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(TextError, match="unsafe"):
        Text(folder).encode_chat(MESSAGES)


def test_a_broken_tokenizer_or_template_is_named_at_the_start(folder):
    configure(folder, chat_template="{% for %}")
    with pytest.raises(ModelError, match="chat template is not valid"):
        Text(folder)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer\.json: is not a tokenizer"):
        Text(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"tokenizer\.json: no such file"):
        Text(folder)
