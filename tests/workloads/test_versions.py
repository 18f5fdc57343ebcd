"""Head, hosts and image run one set of versions."""

import json
from importlib import metadata

import pytest

from workloads import entrypoint, versions
from workloads.errors import UserError
from workloads.slices import check_devices

SET = {"ray": "2.60.0", "jax": "0.10.2", "libtpu": "0.0.42.1"}


@pytest.mark.parametrize(
    ("host", "told"),
    [
        (SET, []),
        (SET | {"jax": "0.10.1"}, ["jax on this host: 0.10.1, but the head has 0.10.2"]),
        (
            {"ray": "2.60.0", "jax": "0.10.2"},
            ["libtpu on this host: not installed, but the head has 0.0.42.1"],
        ),
        (SET | {"flax": "0.12.8"}, ["flax on this host: 0.12.8, but the head has none"]),
    ],
)
def test_each_difference_is_named_with_both_versions(host, told):
    assert versions.differences(SET, host) == told


def test_a_host_of_another_image_refuses_before_it_computes(monkeypatch):
    """Whatever slice it belongs to: the comparison comes first."""
    head = versions.here() | {"jax": "0.1.0"}
    monkeypatch.setenv(versions.VARIABLE, json.dumps(head))
    with pytest.raises(UserError) as refusal:
        check_devices(None)  # type: ignore[arg-type] # never looked at
    [fault] = refusal.value.faults
    assert fault == (
        f"jax on this host: {metadata.version('jax')}, but the head has 0.1.0; give head and hosts "
        "one image"
    )


def test_a_job_tells_its_workers_what_its_driver_has(monkeypatch):
    told = {}
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")
    monkeypatch.setattr(entrypoint.socket, "create_connection", lambda *_, **__: _Closed())
    monkeypatch.setattr("ray.init", lambda **options: told.update(options["runtime_env"]))
    entrypoint.connect()
    monkeypatch.setenv(versions.VARIABLE, told["env_vars"][versions.VARIABLE])
    versions.check_host()
    assert json.loads(told["env_vars"][versions.VARIABLE])["jax"] == metadata.version("jax")


class _Closed:
    def close(self):
        pass


def test_an_image_whose_vllm_is_another_is_not_built(monkeypatch, capsys):
    assert versions.main() == 0
    assert f"ray {metadata.version('ray')}, jax" in capsys.readouterr().out
    monkeypatch.setattr(versions, "vllm_fault", lambda: "vLLM 0.28.0 is installed")
    assert versions.main() == 1
    assert "error: vLLM 0.28.0 is installed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("installed", "fits"),
    [("0.29.0", True), ("0.29.0+tpu", True), ("0.29.1", False), ("0.28.0", False)],
)
def test_vllm_is_that_which_this_ray_is_made_for(monkeypatch, installed, fits):
    real = metadata.version
    monkeypatch.setattr(
        versions.metadata, "version", lambda name: installed if name == "vllm" else real(name)
    )
    fault = versions.vllm_fault()
    assert (fault is None) == fits
    assert fits or f"vLLM {installed} is installed, but Ray 2.60.0 is made for 0.29.0" in str(fault)
