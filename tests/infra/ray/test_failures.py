"""What is said beside the errors of the API server, worded here as the real ones are."""

import pytest

from infra.ray.failures import patience, way_out
from infra.ray.waits import LIMIT, SERVING, WAIT_FOR

NOT_MADE = 'resource "urn:it" was not successfully created by the Kubernetes API server: '
NAMESPACE = {"kind": "Namespace", "metadata": {"name": "research"}}
SERVICE = {
    "kind": "RayService",
    "metadata": {
        "name": "chat",
        "namespace": "research",
        "annotations": {WAIT_FOR: SERVING, LIMIT: "4500"},
    },
}
LOOK = (
    "`kubectl --namespace research describe rayservice chat` and "
    "`kubectl --namespace research get events --field-selector type=Warning` say"
)
CONFLICT = (
    "Server-Side Apply field conflict detected. See https://www.pulumi.com/x#y for help.\n"
    'The resource managed by field manager "pulumi-kubernetes-1a2b" had an apply conflict: '
)


def test_a_wait_that_begins_says_how_long_it_takes_and_where_to_look():
    assert patience(SERVICE) == (
        "RayService/chat: waiting until it is ready to serve with its newest cluster, at most "
        f"4500 seconds; {LOOK} how far it is"
    )


def test_a_wait_that_ends_says_what_did_not_come():
    error = (
        'resource "urn:it" was successfully created, but the Kubernetes API server reported that '
        "it failed to fully initialize or become live: timed out waiting for the condition"
    )
    assert way_out(SERVICE, error) == (
        "RayService/chat was not ready to serve with its newest cluster within 4500 seconds: "
        f"{LOOK} why; `pulumi up` goes on waiting"
    )


def test_what_others_made_is_not_taken_over():
    line = way_out(NAMESPACE, f'{NOT_MADE}namespaces "research" already exists')
    assert line == (
        "Namespace/research is there already and is not this stack's, which would delete it one "
        "day: change raytpu:team.namespace, or, if nothing in it is needed, run `kubectl delete "
        "namespace research`"
    )
    computeclass = {"kind": "ComputeClass", "metadata": {"name": "raytpu-prod-train"}}
    line = way_out(computeclass, f'{NOT_MADE}computeclasses "raytpu-prod-train" already exists')
    assert line == (
        "ComputeClass/raytpu-prod-train is there already and is not this stack's, which would "
        "delete it one day: change the stack's name, or, if nobody uses it, run `kubectl delete "
        "computeclass raytpu-prod-train`"
    )


def test_what_is_being_deleted_is_only_to_be_waited_for():
    error = f'{NOT_MADE}object is being deleted: namespaces "research" already exists'
    told = "Namespace/research is still being deleted; run `pulumi up` again when it is gone"
    assert way_out(NAMESPACE, error) == told


@pytest.mark.parametrize(
    ("told", "held"),
    [
        (
            (
                'Apply failed with 1 conflict: conflict with "dashboard" using ray.io/v1: '
                ".spec.serveConfigV2"
            ),
            "dashboard holds .spec.serveConfigV2",
        ),
        (
            (
                'Apply failed with 2 conflicts: conflicts with "a tool" using ray.io/v1:\n'
                "- .spec.rayClusterConfig.rayVersion\n- .spec.serveConfigV2"
            ),
            "a tool holds .spec.rayClusterConfig.rayVersion, .spec.serveConfigV2",
        ),
        (
            (
                'Apply failed with 2 conflicts: conflicts with "a" using ray.io/v1:\n- .spec.x\n'
                'conflicts with "b":\n- .spec.y'
            ),
            "a holds .spec.x; b holds .spec.y",
        ),
    ],
)
def test_a_conflict_names_the_managers_and_their_fields(told, held):
    assert way_out(SERVICE, CONFLICT + told) == (
        f"RayService/chat was changed by others: {held}; undo the change there, or put this "
        "stack's values in its place: `PULUMI_K8S_ENABLE_PATCH_FORCE=true pulumi up`"
    )


def test_an_error_that_says_all_there_is_stands_alone():
    denied = 'admission webhook "x" denied the request: numOfHosts is 3; it must be 4'
    assert way_out(SERVICE, NOT_MADE + denied) is None
