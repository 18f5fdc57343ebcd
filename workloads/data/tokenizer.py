"""A byte-level BPE tokenizer as Qwen has it: any text is encoded, and decoded to the same text.

Qwen's normalisation to NFC is left out: it would change text that is not in that form.
"""

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

END_OF_TEXT = "<|endoftext|>"
"""Stands after each document; pads too, as in Qwen."""
END_OF_MESSAGE = "<|im_end|>"
SPECIAL_TOKENS = (END_OF_TEXT, "<|im_start|>", END_OF_MESSAGE)

# How Qwen 2 and 3 cut text into words, from their tokenizer.json.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """At most `vocab_size` tokens, special tokens and the 256 bytes among them.

    Little text gives fewer: ask `get_vocab_size()`.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(  # type: ignore[assignment] # untyped stubs
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment] # untyped stubs
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def size(tokenizer: Tokenizer) -> int:
    """Tokens that a model needs for it: ids are below this."""
    return max(tokenizer.get_vocab().values()) + 1


def for_documents(tokenizer_json: str) -> Tokenizer:
    """Encodes documents: a special token spelled out in a text is text, and ends nothing."""
    tokenizer = Tokenizer.from_str(tokenizer_json)
    tokenizer.encode_special_tokens = True
    return tokenizer
