import json

import pytest

from tests.workloads.simulated import Job

SETTINGS = {"vocab_size": 512, "sequence_length": 32}


@pytest.fixture(scope="session")
def small_corpus(tmp_path_factory):
    """What gives the folder of a small corpus, which the first cluster to ask prepares."""
    folder = tmp_path_factory.mktemp("corpus")

    def prepared(address):
        if not [*folder.iterdir()]:
            arguments = ["--settings", json.dumps(SETTINGS), "--output", str(folder)]
            job = Job(address, "workloads.data.main", *arguments)
            assert job.finish(240) == 0, job.lines
        return folder

    return prepared
