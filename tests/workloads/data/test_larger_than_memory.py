"""A corpus of ten times Ray's object store, read as training reads it: streamed, never spilled."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
from ray._private.internal_api import memory_summary

from workloads.data.corpus import Corpus, Part, Split
from workloads.train.stream import Batches, training

pytestmark = pytest.mark.cluster

STORE_BYTES = 80 * 2**20
WIDTH = 16_384
ROWS = 10 * STORE_BYTES // (WIDTH * 4)
GROUP = 64


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory):
    # Ray's sockets lie in its folder, and a socket's path is at most 107 bytes long.
    folder = tmp_path_factory.getbasetemp().parent / "rayl"
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=STORE_BYTES,
        _temp_dir=str(folder),
        logging_level=30,
    )
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


@pytest.fixture
def corpus(tmp_path):
    """Row i holds i everywhere, so that it is small on disk; in memory it is as large as any."""
    schema = pa.schema([("tokens", pa.list_(pa.int32(), WIDTH))])
    (tmp_path / "train").mkdir()
    with pq.ParquetWriter(tmp_path / "train" / "0.parquet", schema) as writer:
        for first in range(0, ROWS, GROUP):
            values = np.repeat(np.arange(first, min(first + GROUP, ROWS), dtype=np.int32), WIDTH)
            column = pa.FixedSizeListArray.from_arrays(pa.array(values), WIDTH)
            writer.write_table(pa.table([column], schema=schema))
    split = Split(
        documents=1,
        text_bytes=1,
        tokens=1,
        rows=ROWS,
        left_out_tokens=0,
        parts=(Part(file="train/0.parquet", rows=ROWS),),
    )
    return Corpus(
        digest="",
        settings_digest="",
        vocab_size=ROWS,
        sequence_length=WIDTH - 1,
        rows_per_group=GROUP,
        train=split,
        held_out=split,
        bytes_per_token=1,
        unigram_entropy=1,
        held_out_entropy=1,
    )


def test_it_streams_through_a_small_object_store_and_each_row_comes_once(
    tmp_path, corpus, cluster, monkeypatch
):
    monkeypatch.setattr("workloads.train.stream.ROWS_PER_BLOCK", 64)  # 4 MiB, as of usual rows
    batches = Batches(global_batch=16, hosts=2)
    stream = training(str(tmp_path), corpus, batches, 3, range(ROWS // 16))
    seen, passed_bytes = [], 0
    for batch in stream.iter_batches(batch_size=8):
        assert (batch["tokens"] == batch["tokens"][:, :1]).all()
        seen += batch["tokens"][:, 0].tolist()
        passed_bytes += batch["tokens"].nbytes
    assert sorted(seen) == list(range(ROWS))
    assert passed_bytes >= 10 * STORE_BYTES
    assert "Spilled" not in memory_summary(cluster, stats_only=True)
