"""An agent that restarts, and one that may not start."""

import os

import pytest

from tests.cluster.pods import is_running, python, sh, sleeping
from tests.cluster.waiting import wait
from tools.cluster.kubelet.agent import KubeletError


def test_a_new_agent_takes_up_what_the_last_one_left(bare):
    with bare.kubelet():
        once = bare.pod("once", sh("exec sleep 76547"))
        always = bare.pod("always", python("import time; time.sleep(99)"), restartPolicy="Always")
        is_running(once)
        is_running(always)
    assert not sleeping(76547)
    with bare.kubelet():
        (status,) = bare.end_of(once).status.container_statuses
        assert (once().status.phase, status.state.terminated.exit_code) == ("Failed", 137)
        wait(lambda: always().status.container_statuses[0].restart_count == 1)
        is_running(always)
        for name in ("once", "always"):
            bare.delete(name)
    assert not {"once", "always"} & bare.names()


def test_without_root_one_line_says_why(bare, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(KubeletError, match="only root makes: run this as root"):
        bare.kubelet().__enter__()
