import pytest

from workloads import entrypoint
from workloads.errors import UserError, explain
from workloads.settings import TrainSettings


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("", "not set; submit this as a Ray job"),
        ("auto", "'auto' is not host:port"),
        ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1"),
    ],
)
@pytest.mark.timeout(60)
def test_a_cluster_that_is_not_there_is_told_at_once(monkeypatch, address, words):
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(UserError, match=words):
        entrypoint.connect()


def test_every_wrong_field_of_the_settings_is_named():
    with pytest.raises(UserError) as refusal:
        entrypoint.settings(TrainSettings, '{"steps": 0, "global_batch": 8, "color": 1}')
    assert [fault.split(": ")[1] for fault in refusal.value.faults] == ["mesh", "steps", "color"]


def test_a_remote_error_is_told_by_its_last_line():
    assert explain(RuntimeError("Traceback\n  File x\nOSError: disk full\n")) == (
        "OSError: disk full",
    )
    assert explain(KeyError("a")) == ("KeyError: 'a'",)


def test_a_users_error_is_found_inside_what_wraps_it():
    outer = RuntimeError("Traceback\nlast line")
    outer.__cause__ = UserError("one", "two")
    assert explain(outer) == ("one", "two")
    assert entrypoint.run(lambda: (_ for _ in ()).throw(outer)) == 1
