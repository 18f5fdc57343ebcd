"""A secret never shows, neither on disk nor under the engine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.config import ServeSpec
from infra.errors import ConfigError
from tests.infra.config.stack import SOUND, changed, faults, read

SEALED = {"secure": "v1:0123:cipher"}
MARKED = ["raytpu:workloads"]


def test_an_encrypted_key_is_accepted_on_disk_and_not_decrypted():
    server = read(changed(workloads__2__api_key=SEALED), encrypted=True).workloads[2]
    assert isinstance(server, ServeSpec)
    assert server.api_key is not None
    assert server.api_key.get_secret_value() == SEALED["secure"]


def test_the_engine_hands_on_the_decrypted_key():
    config = read(changed(workloads__2__api_key="sk-1"), secret_keys=MARKED)
    server = config.workloads[2]
    assert isinstance(server, ServeSpec)
    assert server.api_key is not None
    assert server.api_key.get_secret_value() == "sk-1"
    assert "sk-1" not in repr(config)
    assert "sk-1" not in str(server.model_dump())


@pytest.mark.parametrize("key", ["", "two words", "line\n", "schl\u00fcssel"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key):
    assert faults(changed(workloads__2__api_key=key), secret_keys=MARKED) == [
        (
            "raytpu:workloads[2].api_key: [secret] cannot be sent as a key or password; "
            "use printable ASCII without spaces"
        )
    ]


@pytest.mark.parametrize("how", [{"encrypted": True}, {"secret_keys": []}])
@pytest.mark.parametrize("key", ["sk-clear", 12345678])
def test_a_key_in_clear_text_is_refused_on_both_ways_and_not_shown(how, key):
    assert faults(changed(workloads__2__api_key=key), **how) == [
        (
            "raytpu:workloads[2].api_key: is in clear text, for all who can read the file; "
            "encrypt it: pulumi config set --secret --path 'raytpu:workloads[2].api_key'"
        )
    ]


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("environment", "raytpu:environment"),
        ("cluster", "raytpu:cluster"),
        ("slices", "raytpu:slices"),
        ("slices__0__topology", "raytpu:slices"),
        ("slices__1", "raytpu:slices"),
        ("cluster__storage", "raytpu:cluster"),
    ],
)
def test_a_secret_outside_of_the_workloads_is_refused_alike_on_both_ways(path, where):
    expected = [
        (
            f"{where}: is encrypted, and only hugging_face_token, and api_key and redis.password "
            "of a serve workload, may be; write it in clear text"
        )
    ]
    on_disk = list(faults(changed(**{path: SEALED}), encrypted=True))
    engine = faults(changed(**{path: "opened"}), secret_keys=[where])
    assert [line for line in on_disk if line.startswith(where)] == expected
    assert [line for line in engine if line.startswith(where)] == expected


@pytest.mark.parametrize(
    "path", ["workloads__1__name", "workloads__1__mesh", "workloads__0__sources", "workloads__2"]
)
def test_another_secret_in_the_workloads_is_refused_by_its_place(path):
    where = "raytpu:" + path.replace("__", "[", 1).replace("__", "].")
    where += "" if "." in where else "]"
    lines = list(faults(changed(**{path: SEALED}), encrypted=True))
    assert f"{where}: is encrypted, and only hugging_face_token, and api_key" in lines[0]
    assert sum(line.startswith(where) for line in lines) == 1


def test_an_api_key_on_another_kind_of_workload_is_an_unknown_key():
    lines = faults(changed(workloads__1__api_key=SEALED), encrypted=True)
    assert lines[0].startswith("raytpu:workloads[1].api_key: there is no such key")


def test_faults_are_told_alike_on_disk_and_by_the_engine():
    spoilt = {
        "slices__0__topology": "4x5",
        "workloads__1__slice": "trian",
        "workloads__1__steps": 10,
        "workloads__2__mesh": {"tensor": 3},
    }
    on_disk = faults(changed(**spoilt, workloads__2__api_key=SEALED), encrypted=True)
    engine = faults(changed(**spoilt, workloads__2__api_key="sk-1"), secret_keys=MARKED)
    assert on_disk == engine
    assert len(on_disk) > 3
    plain = faults(changed(**spoilt))
    assert faults(changed(**spoilt), encrypted=True) == plain
    assert any("'trian'" in line for line in plain)


# Long enough not to be a part of a message by chance.
_SECRETS = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=12, max_size=30)
_WORKLOAD_PATHS = st.sampled_from(
    [f"workloads__{i}__{key}" for i, entry in enumerate(SOUND["workloads"]) for key in entry]
    + [f"workloads__{i}__unknown" for i in range(3)]
    + [f"workloads__{i}" for i in range(4)]
    + ["workloads", "workloads__1__mesh__data", "workloads__2__api_key", "workloads__1__dtype"]
)
_ELSEWHERE = st.sampled_from(
    [
        "environment",
        "cluster",
        "cluster__mode",
        "slices",
        "slices__0",
        "slices__1__topology",
        "slices__0__machine_type",
        "slices__0__name",
        "slices__2",
        "slices__0__count",
    ]
)
_WRAP = st.sampled_from(
    [
        lambda s: s,
        lambda s: [s],
        lambda s: {"path": s},
        lambda s: {"data": s},
        lambda s: f"s3://{s}",
    ]
)


def everything_said(stack, **how):
    with pytest.raises(ConfigError) as caught:
        read(stack, **how)
    error = caught.value
    parts = (error, error.problems, error.__context__, error.__cause__)
    return " ".join(f"{part} {part!r}" for part in parts)


@given(_WORKLOAD_PATHS, _SECRETS, _WRAP)
def test_no_secret_of_the_workloads_is_in_a_message(path, secret, wrap):
    stack = changed(**{path: wrap(secret), "slices__0__topology": "5x5"})
    assert secret not in everything_said(stack, secret_keys=MARKED)


@given(_ELSEWHERE, _SECRETS, _WRAP)
def test_no_secret_of_another_key_is_in_a_message(path, secret, wrap):
    key = path.partition("__")[0]
    stack = changed(**{path: wrap(secret)})
    assert secret not in everything_said(stack, secret_keys=[f"raytpu:{key}"])
