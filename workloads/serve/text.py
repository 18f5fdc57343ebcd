"""Text to tokens and back, as a Hugging Face folder's tokenizer defines it. Imports no JAX."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from workloads.model.config import ModelError, read_json
from workloads.serve.completion import Delta, Token

SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")


class TextError(ValueError):
    """A text that this model's tokenizer or chat template does not take."""


class Text:
    """The tokenizer and chat template of one folder."""

    def __init__(self, folder: Path) -> None:
        """Raises ModelError if the folder has no tokenizer that can be read."""
        path = folder / "tokenizer.json"
        if not path.exists():
            raise ModelError(str(path), ["no such file; a Hugging Face folder has one"])
        try:
            self.tokenizer: Tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # noqa: BLE001 (tokenizers raises no other)
            raise ModelError(str(path), [f"is not a tokenizer ({error})"]) from None
        config_path = folder / "tokenizer_config.json"
        config = read_json(config_path) if config_path.exists() else {}
        self._special = {name: _content(config.get(name)) for name in SPECIAL_TOKENS}
        self._template = _template(folder, config)

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text).ids

    def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """The conversation as the model was taught it, up to where the assistant speaks.

        Raises TextError if the model has no chat template or the template refuses the messages.
        """
        if self._template is None:
            raise TextError("this model has no chat template; use /v1/completions")
        try:
            text = self._template.render(
                messages=messages, add_generation_prompt=True, **self._special
            )
        except (TemplateError, TypeError) as error:
            raise TextError(f"the model's chat template refuses the messages: {error}") from None
        # The template writes the special tokens itself.
        return self.tokenizer.encode(text, add_special_tokens=False).ids


class Writer:
    """Tokens to text that may be sent: no half characters, nothing from a stop string on."""

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str]) -> None:
        self._tokenizer, self._stops = tokenizer, stops
        self._stream = DecodeStream(skip_special_tokens=True)
        self._ids: list[int] = []
        self._decoded = 0
        self._held = ""
        self.stopped = False
        """A stop string was written; it and what follows are not sent."""

    def push(self, token: int) -> str:
        """The text that this token makes certain."""
        self._ids.append(token)
        return self._release(self._stream.step(self._tokenizer, token) or "")

    def finish(self) -> str:
        """The rest, with bytes that never became a character as U+FFFD."""
        whole = self._tokenizer.decode(self._ids, skip_special_tokens=True)
        return self._release(whole[self._decoded :]) + self._flush()

    def _release(self, text: str) -> str:
        self._decoded += len(text)
        self._held += text
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            sent, self._held, self.stopped = self._held[: min(found)], "", True
            return sent
        keep = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        sent = self._held[: len(self._held) - keep]
        self._held = self._held[len(sent) :]
        return sent

    def _flush(self) -> str:
        held, self._held = self._held, ""
        return held


async def write(
    tokens: AsyncGenerator[Token, None], tokenizer: Tokenizer, stops: Sequence[str]
) -> AsyncGenerator[Delta, None]:
    """The completion as text, until its tokens end or a stop string does."""
    writer, count = Writer(tokenizer, stops), 0
    async with aclosing(tokens):  # so that a stop string frees the row at once
        async for token in tokens:
            count += 1
            if token.finish_reason == "stop":  # the end-of-text token itself has no text
                yield Delta(writer.finish(), count, "stop")
                return
            text = writer.push(token.id)
            if not writer.stopped and token.finish_reason is not None:
                text += writer.finish()
            reason = "stop" if writer.stopped else token.finish_reason
            if text or reason:
                yield Delta(text, count, reason)
            if reason:
                return


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)


def _content(token: Any) -> str | None:
    """A special token is written as its text, or as an object that holds it."""
    return token.get("content") if isinstance(token, dict) else token


def _template(folder: Path, config: Mapping[str, Any]) -> Any:
    """The compiled chat template, or None. Newer folders keep it in a file of its own."""
    path = folder / "chat_template.jinja"
    source = path.read_text() if path.exists() else config.get("chat_template")
    if isinstance(source, list):  # several, by name
        source = {entry["name"]: entry["template"] for entry in source}.get("default")
    if source is None:
        return None
    # A template comes with a downloaded model: it may not reach beyond its arguments.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    try:
        return environment.from_string(source)
    except TemplateSyntaxError as error:
        raise ModelError(str(folder), [f"its chat template is not valid: {error}"]) from None


# The functions that transformers gives to templates.
def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(format_: str) -> str:
    return datetime.now().astimezone().strftime(format_)
