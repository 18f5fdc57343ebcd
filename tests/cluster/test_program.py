"""Programs end with us and say why if they end before; certificates are for whom they name."""

import ssl
import subprocess
import sys

import pytest

from tests.cluster.waiting import running, wait
from tools.cluster.certificates import Authority
from tools.cluster.program import Program, ProgramError


def test_a_program_that_ends_is_named_with_its_last_words(tmp_path):
    last_words = pytest.raises(ProgramError, match=r"^store ended with code 3; .*port in use$")
    with Program("store", ["sh", "-c", "echo port in use; exit 3"], tmp_path) as store, last_words:
        store.wait(lambda: False, "not ready", 30)


def test_a_wait_for_a_program_has_an_end(tmp_path):
    with Program("store", ["sh", "-c", "echo thinking; exec sleep 60"], tmp_path) as program:
        wait(lambda: program.log.read_text() == "thinking\n")
        with pytest.raises(ProgramError, match=r"^store: not ready .*0\.2 s; .*thinking$"):
            program.wait(lambda: False, "not ready", 0.2)


def test_a_program_that_will_not_end_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("tools.cluster.program.STOP_LIMIT_S", 0.2)
    stubborn = f"trap '' TERM; echo {tmp_path}; while :; do sleep 0.1; done"
    with Program("stubborn", ["sh", "-c", stubborn], tmp_path) as program:
        wait(lambda: str(tmp_path) in program.log.read_text())
    assert not running(str(tmp_path))


def test_a_program_dies_with_whoever_started_it(tmp_path):
    marker = str(tmp_path / "marker")
    start = (
        "import pathlib, sys, time; from tools.cluster.program import Program; "
        f"Program('p', ['sh', '-c', 'sleep 99; true', {marker!r}], pathlib.Path({str(tmp_path)!r}))"
        ".start(); print('started', flush=True); time.sleep(99)"
    )

    def child():
        return [one for one in running(marker) if one.info["cmdline"][0] == "sh"]

    with subprocess.Popen([sys.executable, "-c", start], stdout=subprocess.PIPE) as parent:
        wait(child)
        parent.kill()
    wait(lambda: not child())


def test_a_certificate_is_for_its_names_and_of_its_authority(tmp_path):
    authority, other = Authority(tmp_path / "a"), Authority(tmp_path / "b")
    pair = authority.issue("server", hosts=["127.0.0.1", "kubernetes.default"])
    assert shakes_hands(authority, pair, "kubernetes.default")
    assert shakes_hands(authority, pair, "127.0.0.1")
    assert not shakes_hands(authority, pair, "elsewhere")
    assert not shakes_hands(other, pair, "kubernetes.default")


def shakes_hands(authority, pair, name):
    server, there = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.MemoryBIO()
    server.load_cert_chain(pair.public, pair.private)
    client_side, back = ssl.create_default_context(cafile=authority.path), ssl.MemoryBIO()
    ours = client_side.wrap_bio(back, there, server_hostname=name)
    theirs = server.wrap_bio(there, back, server_side=True)
    for _ in range(4):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    return True
