import pytest

from workloads import drain


@pytest.mark.parametrize("address", ["", "auto", "127.0.0.1:1"])
@pytest.mark.timeout(60)
def test_without_a_cluster_the_hook_ends_at_once_and_says_so(monkeypatch, capsys, address):
    monkeypatch.setenv("RAY_ADDRESS", address)
    assert drain.main(["--limit-s", "100"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"raytpu | error: RAY_ADDRESS: no Ray cluster answers at {address!r} (")
