"""When the answers of probes count. The clock is played: no test waits."""

import asyncio
from itertools import islice

import pytest

from tools.cluster.kubelet import probes
from tools.cluster.kubelet.probes import unsupported, verdicts

GOOD, BAD = None, "down"


@pytest.fixture
def slept(monkeypatch):
    """The pauses that were asked for, none of which is made."""
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)

    monkeypatch.setattr(probes.asyncio, "sleep", sleep)
    return pauses


def judge(probe, answers):
    """The verdicts on these answers: (after which answer, what)."""
    given, found = [], []

    async def check():
        given.append(answers[len(given)] if len(given) < len(answers) else "end")
        return given[-1]

    async def listen():
        async for wrong in verdicts(probe, check):
            if "end" in given:
                return
            found.append((len(given), wrong))

    asyncio.run(listen())
    return found


@pytest.mark.usefixtures("slept")
@pytest.mark.parametrize(
    ("probe", "answers", "expected"),
    [
        ({}, [GOOD], [(1, GOOD)]),
        ({}, [BAD, BAD], []),  # three in a row by default
        ({}, [BAD, BAD, BAD], [(3, BAD)]),
        ({}, [BAD, BAD, GOOD, BAD, BAD], [(3, GOOD)]),
        ({"failureThreshold": 1}, [GOOD, BAD, GOOD], [(1, GOOD), (2, BAD), (3, GOOD)]),
        ({"successThreshold": 2}, [GOOD, BAD, GOOD, GOOD], [(4, GOOD)]),
    ],
)
def test_as_many_answers_in_a_row_as_the_thresholds_say_count(probe, answers, expected):
    assert judge(probe, answers) == expected


def test_a_probe_waits_first_and_then_between_answers(slept):
    judge({"initialDelaySeconds": 7, "periodSeconds": 5, "failureThreshold": 1}, [GOOD])
    assert list(islice(slept, 2)) == [7, 5]


def test_a_probe_of_another_kind_is_refused_by_name():
    container = {"name": "main", "livenessProbe": {"grpc": {"port": 1}}, "readinessProbe": {}}
    assert list(unsupported(container)) == [
        'livenessProbe of "main" has grpc: use one of exec, httpGet, tcpSocket',
        'readinessProbe of "main" has nothing: use one of exec, httpGet, tcpSocket',
    ]
