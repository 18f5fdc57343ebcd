"""What the name of an image means here."""

import pytest

from tests.tools.project import REPOSITORY
from tools.cluster.images import RAY_CODE, ray_image, repository


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("ray", "ray"),
        ("ray:2.60.0-py311-tpu", "ray"),
        (
            "us-east5-docker.pkg.dev/acme-ml/raytpu/ray:0.1.0",
            "us-east5-docker.pkg.dev/acme-ml/raytpu/ray",
        ),
        ("localhost:5000/ray", "localhost:5000/ray"),  # a port, not a tag
        ("localhost:5000/ray:1", "localhost:5000/ray"),
        ("quay.io/x/ray@sha256:0123", "quay.io/x/ray"),
        ("quay.io/x/ray:1@sha256:0123", "quay.io/x/ray"),
    ],
)
def test_an_image_is_known_by_its_repository(reference, expected):
    assert repository(reference) == expected


def test_the_code_is_where_the_real_image_has_it():
    dockerfile = (REPOSITORY / "images/ray/Dockerfile").read_text()
    assert f"WORKDIR {RAY_CODE}\n" in dockerfile
    assert f"ENV PYTHONPATH={RAY_CODE}\n" in dockerfile
    image = ray_image()
    assert image.working_dir == image.variables()["PYTHONPATH"] == RAY_CODE
    assert image.folders[f"{RAY_CODE}/workloads"] == REPOSITORY / "workloads"
