"""The checkpoint that a fine-tuning run starts from: whether settings and corpus agree with it."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from workloads.data.corpus import TOKENIZER, Corpus
from workloads.model.config import ModelConfig
from workloads.settings import ModelSettings, TrainSettings


def faults(
    settings: TrainSettings, corpus: Corpus, tokenizer_json: str, base: Path, config: ModelConfig
) -> Iterator[str]:
    """`config` is the checkpoint's, `tokenizer_json` what the corpus was packed with."""
    if settings.model != ModelSettings():
        yield f"model: sizes are given beside base, and {base} decides them; leave model out"
    yield from _tokenizer_faults(tokenizer_json, base / TOKENIZER)
    if corpus.vocab_size > config.vocab_size:
        yield (
            f"data: the corpus has {corpus.vocab_size} tokens, and the model in {base} knows "
            f"{config.vocab_size}; pack the corpus with the model's own tokenizer"
        )
    if corpus.sequence_length > config.max_position_embeddings:
        yield (
            f"data: its sequences have {corpus.sequence_length} tokens, and the model in {base} is "
            f"made for {config.max_position_embeddings}; lower sequence_length to that"
        )


def _tokenizer_faults(tokenizer_json: str, path: Path) -> Iterator[str]:
    try:
        own = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        yield f"base: {path}: cannot be read ({error}); name a folder that has one"
        return
    if own != tokenizer_json:
        yield (
            f"data: the corpus was packed with tokenizer {_digest(tokenizer_json)}, and the model "
            f"was made with {_digest(own)} ({path}); set tokenizer of the data workload to it"
        )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
