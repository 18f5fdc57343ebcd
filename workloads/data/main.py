"""The data job: `python -m workloads.data.main --settings JSON --output PATH`."""

import argparse
import sys
import time
from collections.abc import Sequence

from workloads import entrypoint
from workloads.data.prepare import prepare
from workloads.log import say
from workloads.settings import DataSettings


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0, or 1 after a line that says what to mend."""
    parser = argparse.ArgumentParser(prog="workloads.data.main", description=__doc__)
    parser.add_argument("--settings", required=True, help="DataSettings as JSON")
    parser.add_argument("--output", required=True, help="folder or URL of the corpus")
    parser.add_argument("--tokenizer", help="folder or URL of a tokenizer.json to pack with")
    arguments = parser.parse_args(argv)
    return entrypoint.run(lambda: _job(arguments.settings, arguments.output, arguments.tokenizer))


def _job(settings_json: str, output: str, tokenizer: str | None) -> None:
    started = time.monotonic()
    settings = entrypoint.settings(DataSettings, settings_json)
    entrypoint.connect()
    corpus = prepare(settings, output, tokenizer)
    for name, split in (("train", corpus.train), ("held-out", corpus.held_out)):
        say(
            f"{name}: {split.documents} documents, {split.tokens} tokens, {split.rows} rows of "
            f"{corpus.sequence_length + 1}; {split.left_out_tokens} tokens at the end fill no row"
        )
    say(
        f"vocabulary {corpus.vocab_size}, {corpus.bytes_per_token:.2f} bytes a token; "
        f"unigram entropy {corpus.unigram_entropy:.3f} nats a token"
    )
    say(f"corpus written to {output} in {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
