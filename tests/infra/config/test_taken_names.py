"""Names that are somebody else's, and addresses that the way to a pod would change."""

import pytest

from tests.infra.config.stack import faults, on_gke, only


def test_a_workload_is_no_service_account_that_a_namespace_has_of_its_own():
    """Else its rights would be those of every pod that names no account, a submitter's among
    them."""
    line = only(faults(on_gke(workloads__2__name="default")), "workloads[2].name")
    assert "'default' is the service account of all pods" in line


@pytest.mark.parametrize("source", ["gs://", "gs:///a.txt", "gs://*/a.txt", "gs://Bucket/a.txt"])
def test_a_source_names_the_bucket_that_the_job_may_read(source):
    line = only(faults(on_gke(workloads__0__sources=[source])), "workloads[0].sources[0]")
    assert "names no bucket" in line


@pytest.mark.parametrize("path", ["gs://", "gs://B_x/a", "gs://bucket/$(id)", "gs://bucket/a,b"])
def test_a_folder_of_a_bucket_survives_shells_and_mount_options(path):
    stack = on_gke(workloads__1__data={"path": path})
    assert "gs://" in only(faults(stack), "workloads[1].data.path")


def test_a_job_is_tried_again_no_more_often_than_kubernetes_can_count():
    stack = on_gke(workloads__1__retries=10**12)
    assert "use 100 or less" in only(faults(stack), "workloads[1].retries")


@pytest.mark.parametrize("name", ["train-v5e-4x4", "train-v5e-2x4"])
def test_a_slice_is_not_called_as_the_fallback_of_another(name):
    """Else both would come by one compute class."""
    shape = {"machine_type": "ct5lp-hightpu-4t", "topology": "4x4", "provision": "compute_class"}
    fallback = {"machine_type": "ct5lp-hightpu-4t", "topology": "4x4"}
    first = {
        "name": "train",
        "machine_type": "ct6e-standard-4t",
        "topology": "4x8",
        "fallback": [fallback],
    }
    zones = {"location": "us-central1", "zones": ["us-central1-a"]}
    stack = on_gke(slices=[first, {"name": name, **shape}], workloads=[])
    stack["cluster"].update(zones)
    lines = [line for line in faults(stack) if "the name that raytpu:slices[0].fallback[0]" in line]
    assert lines == faults(stack)
    assert (lines != []) is (name == "train-v5e-4x4")
