"""The data job's two passes over the text, spread over the cluster by Ray Data.

The first looks: faults, counts, and a sample for the tokenizer. The second tokenizes, packs and
writes. The text is read twice and never held as a whole, so its size is not bound by memory.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from tokenizers import Tokenizer

from workloads.data import corpus, pack, sources, split, storage, tokenizer
from workloads.data.cluster import on_cluster
from workloads.data.corpus import Corpus
from workloads.errors import UserError
from workloads.log import say
from workloads.settings import DataSettings

SHARD_BYTES = 64 * 2**20
SAMPLE_BYTES = 64 * 2**20
"""Text a tokenizer is trained on: more changes little, and the driver holds it in memory."""


def prepare(
    settings: DataSettings,
    output: str,
    tokenizer_url: str | None = None,
    *,
    shard_bytes: int = SHARD_BYTES,
) -> Corpus:
    """Writes the corpus to `output`, in place of what was there. Needs a connected Ray.

    Its tokenizer is that of `tokenizer_url`, or else one that is trained on the text. Raises
    UserError for whatever of the text cannot be used.
    """
    given = None if tokenizer_url is None else _given(tokenizer_url)
    found = sources.find(settings.sources)
    shards = sources.shards(found, shard_bytes)
    size_bytes = sum(source.size_bytes for source in found)
    say(f"reading {len(found)} files, {size_bytes / 1e6:.1f} MB, in {len(shards)} shards")

    sampled = 0.0 if given else min(1.0, SAMPLE_BYTES / max(size_bytes, 1))
    scans = on_cluster(
        shards, lambda _, shard: pack.scan(shard, settings.text_column, settings.seed, sampled)
    )
    limit = _threshold(scans, settings)
    tokenizer_json = given or _trained(scans, limit, settings)

    # From here on the old corpus is gone; without its manifest nobody takes a part for the whole.
    for name in (corpus.MANIFEST, *pack.SIDES, corpus.TOKENIZER):
        storage.remove(storage.join(output, name))
    how = pack.Packing(
        output=output,
        column=settings.text_column,
        seed=settings.seed,
        threshold=limit,
        sequence_length=settings.sequence_length,
        tokenizer_json=tokenizer_json,
    )
    packed = on_cluster(shards, lambda number, shard: pack.pack(number, shard, how))
    result = _manifest(packed, tokenizer_json, settings)
    storage.write_atomically(storage.join(output, corpus.TOKENIZER), tokenizer_json)
    storage.write_atomically(
        storage.join(output, corpus.MANIFEST), result.model_dump_json(indent=2)
    )
    return result


def _threshold(scans: Sequence[pack.Scan], settings: DataSettings) -> int:
    """Reports what was read and decides the split; UserError if it cannot be used."""
    if faults := [fault for scan in scans for fault in scan.faults]:
        raise UserError(*faults)
    documents = sum(scan.documents for scan in scans)
    nulls, empty = sum(scan.nulls for scan in scans), sum(scan.empty for scan in scans)
    say(f"{documents} documents; left out: {nulls} null, {empty} empty")
    where = ", ".join(settings.sources) or sources.BUILT_IN
    if documents == 0:
        raise UserError(f"sources: {where} hold no text; name files with text in them")
    smallest = min(scan.smallest_key for scan in scans)
    largest = max(scan.largest_key for scan in scans)
    if smallest == largest:
        raise UserError(
            f"sources: {where} hold one distinct document, and held-out text needs another; "
            "add text, or cut it into several files"
        )
    return split.threshold(settings.held_out_fraction, smallest, largest)


def _given(url: str) -> str:
    """The tokenizer of a folder, as it is. Raises UserError."""
    where = storage.join(url, corpus.TOKENIZER)
    try:
        text = storage.read_text(where)
        vocabulary = Tokenizer.from_str(text).get_vocab()
    except FileNotFoundError:
        raise UserError(f"tokenizer: {where}: no such file; name a folder that has one") from None
    except Exception as error:  # noqa: BLE001 # neither library raises anything narrower
        raise UserError(f"tokenizer: {where}: cannot be read ({error}); name another") from None
    if tokenizer.END_OF_TEXT not in vocabulary:
        raise UserError(
            f"tokenizer: {where}: has no token {tokenizer.END_OF_TEXT}, which is put after each "
            "document; name that of a Qwen model"
        )
    return text


def _trained(scans: Sequence[pack.Scan], limit: int, settings: DataSettings) -> str:
    sample = sorted(
        (key, text) for scan in scans for key, text in scan.sample if key >= limit
    )  # the held-out keys are below the limit
    trained = tokenizer.train((text for _, text in sample), settings.vocab_size)
    if trained.get_vocab_size() < settings.vocab_size:
        raise UserError(
            f"vocab_size: {settings.vocab_size} tokens are more than the training text gives; "
            f"use at most {trained.get_vocab_size()}, or add text"
        )
    return trained.to_str()


def _manifest(
    packed: Sequence[dict[str, pack.Counts]], tokenizer_json: str, settings: DataSettings
) -> Corpus:
    sides = {side: _split(side, [counts[side] for counts in packed]) for side in pack.SIDES}
    names = {"train": "training", "held_out": "held-out"}
    row = settings.sequence_length + 1
    faults = [
        f"sequence_length: a row takes {row} tokens and the {names[side]} text has "
        f"{whole.tokens} in {whole.documents} documents; lower it, or add text"
        for side, whole in sides.items()
        if whole.rows == 0
    ]
    if faults:
        raise UserError(*faults)
    targets = {
        side: np.sum([counts[side].target_counts for counts in packed], axis=0)
        for side in pack.SIDES
    }
    digest = hashlib.blake2b(tokenizer_json.encode(), digest_size=16)
    for counts in packed:
        digest.update("".join(counts[side].digest for side in pack.SIDES).encode())
    held_out = sides["held_out"]
    return Corpus(
        digest=digest.hexdigest(),
        settings_digest=hashlib.sha256(settings.model_dump_json().encode()).hexdigest()[:32],
        vocab_size=tokenizer.size(Tokenizer.from_str(tokenizer_json)),
        sequence_length=settings.sequence_length,
        rows_per_group=pack.ROWS_PER_GROUP,
        train=sides["train"],
        held_out=held_out,
        # Each document's end is a token that stands for no byte.
        bytes_per_token=held_out.text_bytes / (held_out.tokens - held_out.documents),
        unigram_entropy=corpus.cross_entropy(targets["held_out"], targets["train"]),
        held_out_entropy=corpus.entropy(targets["held_out"]),
    )


def _split(side: str, counts: Sequence[pack.Counts]) -> corpus.Split:
    return corpus.Split(
        documents=sum(part.documents for part in counts),
        text_bytes=sum(part.text_bytes for part in counts),
        tokens=sum(part.tokens for part in counts),
        rows=sum(part.rows for part in counts),
        left_out_tokens=sum(part.left_out_tokens for part in counts),
        parts=tuple(
            corpus.Part(file=pack.part_name(side, number), rows=part.rows)
            for number, part in enumerate(counts)
            if part.rows
        ),
    )
