"""A secret never shows, neither on disk nor under the engine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.config import ServeSpec
from infra.errors import ConfigError
from tests.infra.config.stack import SOUND, changed, faults, on_gke, read

SEALED = {"secure": "v1:0123:cipher"}
MARKED = ["raytpu:workloads"]
TOKEN = {"hugging_face_token": "hf_1"}


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


def test_the_token_of_the_hub_and_a_password_of_redis_are_accepted_encrypted():
    redis = {"address": "redis://redis:6379", "password": SEALED}
    stack = on_gke(hugging_face_token=SEALED, workloads__2__redis=redis)
    config = read(stack, encrypted=True)
    server = config.workload("chat")
    assert isinstance(server, ServeSpec)
    assert server.redis is not None
    found = (config.hugging_face_token, server.redis.password)
    assert [secret and secret.get_secret_value() for secret in found] == [SEALED["secure"]] * 2


def test_the_engine_hands_on_the_token_and_the_password():
    redis = {"address": "redis://redis:6379", "password": "open-sesame"}
    stack = on_gke(**TOKEN, workloads__2__redis=redis)
    config = read(stack, secret_keys=["raytpu:hugging_face_token", *MARKED])
    assert config.hugging_face_token is not None
    assert config.hugging_face_token.get_secret_value() == "hf_1"
    assert "hf_1" not in repr(config)
    assert "open-sesame" not in repr(config)


@pytest.mark.parametrize("how", [{"encrypted": True}, {"secret_keys": []}])
def test_a_token_or_password_in_clear_text_is_refused_on_both_ways_and_not_shown(how):
    redis = {"address": "redis://redis:6379", "password": "open-sesame"}
    lines = faults(on_gke(**TOKEN, workloads__2__redis=redis), **how)
    assert [line.partition(": ")[0] for line in lines] == [
        "raytpu:hugging_face_token",
        "raytpu:workloads[2].redis.password",
    ]
    assert all("is in clear text" in line for line in lines)
    assert not any("hf_1" in line or "sesame" in line for line in lines)


@pytest.mark.parametrize("token", ["", "two words", "[1]", '{"a": "b"}'])
def test_a_token_that_is_none_is_refused_and_not_shown(token):
    lines = faults(on_gke(hugging_face_token=token), secret_keys=["raytpu:hugging_face_token"])
    assert len(lines) == 1
    assert lines[0].startswith("raytpu:hugging_face_token: [secret] ")


@pytest.mark.parametrize("path", ["workloads__2__redis", "workloads__2__redis__address"])
def test_of_redis_only_the_password_may_be_encrypted(path):
    stack = on_gke(workloads__2__redis={"address": "redis://redis:6379"})
    *_, key = path.split("__")
    if key == "redis":
        stack["workloads"][2]["redis"] = SEALED
    else:
        stack["workloads"][2]["redis"][key] = SEALED
    where = path.replace("workloads__2", "workloads[2]").replace("__", ".")
    lines = faults(stack, encrypted=True)
    assert f"raytpu:{where}: is encrypted, and only" in lines[0]


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


@given(
    st.sampled_from(["hugging_face_token", "workloads__2__redis", "workloads__2__api_key"]),
    _SECRETS,
    _WRAP,
)
def test_no_secret_of_a_stack_on_gke_is_in_a_message(path, secret, wrap):
    stack = on_gke(**{path: wrap(secret), "slices__0__topology": "5x5"})
    marked = ["raytpu:hugging_face_token", *MARKED]
    assert secret not in everything_said(stack, secret_keys=marked)


@given(_ELSEWHERE, _SECRETS, _WRAP)
def test_no_secret_of_another_key_is_in_a_message(path, secret, wrap):
    key = path.partition("__")[0]
    stack = changed(**{path: wrap(secret)})
    assert secret not in everything_said(stack, secret_keys=[f"raytpu:{key}"])
