import pytest

from workloads.errors import UserError
from workloads.train.before import wait_until_writable


def test_storage_that_takes_writes_is_left_as_it_was(tmp_path):
    wait_until_writable(str(tmp_path), 0)
    assert not [*tmp_path.iterdir()]


def test_storage_that_takes_none_is_named_after_the_limit(tmp_path):
    file = tmp_path / "checkpoints"
    file.write_text("")
    with pytest.raises(UserError, match=f"{file}: takes no writes after 0 s .*FileExistsError"):
        wait_until_writable(str(file), 0)
