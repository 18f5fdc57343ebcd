"""A folder with a model of random weights, to try the way to a picture before there is a model.

`python -m workloads.serve.diffusion.new FOLDER`. Its pictures are noise.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from workloads.log import say
from workloads.serve.diffusion.config import DiffusionConfig

SIZES = ("image_size", "patch_size", "hidden_size", "layers", "attention_heads", "text_length")


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="workloads.serve.diffusion.new", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    for size in SIZES:
        default = DiffusionConfig.model_fields[size].default
        parser.add_argument(f"--{size.replace('_', '-')}", type=int, default=default)
    args = parser.parse_args(argv)
    sizes = {size: getattr(args, size) for size in SIZES}
    try:
        write(args.folder, seed=args.seed, **sizes)
    except ValidationError as error:
        parser.error("; ".join(fault["msg"] for fault in error.errors()))
    say(f"{args.folder}: a model of random weights, whose pictures are noise")


def write(folder: Path, *, seed: int, **sizes: int) -> None:
    """Raises ValidationError for sizes that do not go together."""
    from workloads.serve.diffusion import weights  # here: it takes JAX

    tokenizer = bytes_alone()
    known = {"trained": False, "vocab_size": tokenizer.get_vocab_size()}
    config = DiffusionConfig.model_validate({**known, **sizes})
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "tokenizer.json"
        tokenizer.save(str(path))
        weights.save(weights.new(config, seed=seed), folder, tokenizer_json=path)


def bytes_alone() -> Tokenizer:
    """A token for each byte: nothing was learned, and every text has tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({char: id_ for id_, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


if __name__ == "__main__":
    main(sys.argv[1:])
