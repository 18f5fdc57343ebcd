"""What Ray's own autoscaler makes of the groups of a run that chooses among shapes.

Its config is derived and its decisions are made by its own code; KubeRay's provider, to which they
go, divides nodes by the hosts of a slice and rounds down (ray 2.60, cloud_provider.py).
"""

import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from ray.autoscaler._private.kuberay.autoscaling_config import (
    _derive_autoscaling_config_from_ray_cr,
)
from ray.autoscaler.v2.instance_manager.common import InstanceUtil
from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
from ray.autoscaler.v2.schema import AutoscalerInstance
from ray.core.generated import autoscaler_pb2, instance_manager_pb2

from infra.ray.manifests import cluster_spec
from tests.infra.ray.stacks import job, shipped
from workloads import slices
from workloads.errors import UserError

AUTOSCALER: Any = autoscaler_pb2
INSTANCES: Any = instance_manager_pb2  # both generated: no type checker sees what is in them
CONFIG = shipped("second-choice")
SPEC = cluster_spec(CONFIG, job(CONFIG, "pretrain"))
FIRST, SECOND = (shape.contract() for shape in CONFIG.slice("train").shapes)


@dataclass
class Asked:
    """What the driver asks of Ray, one after the other."""

    requests: list

    def request_resources(self, bundles, bundle_label_selectors):
        request = AUTOSCALER.ClusterResourceConstraint()
        for resources, labels in zip(bundles, bundle_label_selectors, strict=True):
            one = request.resource_requests.add(count=1)
            one.request.resources_bundle.update(resources)
            selector = one.request.label_selectors.add()
            for key, value in labels.items():
                selector.label_constraints.add(
                    label_key=key, operator="LABEL_OPERATOR_IN", label_values=[value]
                )
        self.requests.append(request)


@pytest.fixture
def asked(monkeypatch):
    """By a driver for which no slice ever comes."""
    made = Asked([])

    def never(contract, timeout_s):
        raise UserError(f"slice {contract.name} did not come within {timeout_s} s")

    monkeypatch.setattr("ray.autoscaler.sdk.request_resources", made.request_resources)
    monkeypatch.setattr(slices, "wait_for_slices", never)
    with pytest.raises(UserError) as refusal:
        slices.first_whole([FIRST, SECOND], 900)
    assert [fault.split()[1] for fault in refusal.value.faults] == ["train", "train-v5e-4x4"]
    return made.requests


@pytest.fixture
def scheduler(monkeypatch):
    """Remembers since when it has seen pods that nobody wants, by a clock that a test turns."""
    clock = SimpleNamespace(now=1000.0)
    clock.monotonic, clock.time_ns = lambda: clock.now, time.time_ns
    monkeypatch.setattr("ray.autoscaler.v2.scheduler.time", clock)
    made: Any = ResourceDemandScheduler(event_logger=None)
    made.clock = clock
    return made


def decided(scheduler, request, pods=0):
    """With so many pods of the first shape that wait for their nodes."""
    cluster = {"metadata": {"name": "pretrain", "namespace": "research"}, "spec": SPEC}
    derived = _derive_autoscaling_config_from_ray_cr(cluster)
    config = AutoscalingConfig(derived, skip_content_hash=True)
    (variable,) = SPEC["autoscalerOptions"]["env"]
    assert variable["name"] == "RAY_AUTOSCALER_PENDING_NODE_IDLE_TIMEOUT_S"
    head = instance("head", "headgroup", INSTANCES.NodeKind.HEAD)
    waiting = [instance(f"pod-{i}", FIRST.name, INSTANCES.NodeKind.WORKER) for i in range(pods)]
    return scheduler.schedule(
        SchedulingRequest(
            disable_launch_config_check=True,
            node_type_configs=config.get_node_type_configs(),
            max_num_nodes=config.get_max_num_nodes(),
            idle_timeout_s=config.get_idle_timeout_s(),
            pending_idle_timeout_s=float(variable["value"]),
            cluster_resource_constraints=[request],
            current_instances=[head, *waiting],
        )
    )


def instance(name, group, kind):
    made = InstanceUtil.new_instance(name, group, INSTANCES.Instance.ALLOCATED)
    made.node_kind = kind
    return AutoscalerInstance(cloud_instance_id=name, im_instance=made)


def launched(reply):
    return {one.instance_type: one.count for one in reply.to_launch}


def test_nothing_is_made_before_the_driver_asks(scheduler):
    assert [group["replicas"] for group in SPEC["workerGroupSpecs"]] == [0, 0]
    assert launched(decided(scheduler, AUTOSCALER.ClusterResourceConstraint())) == {}


def test_all_hosts_of_the_shape_that_is_asked_for_are_made_and_no_other(scheduler, asked):
    first, second = asked
    assert launched(decided(scheduler, first)) == {"train": 8}  # 4x8 on hosts of 4
    assert launched(decided(scheduler, second)) == {"train-v5e-4x4": 4}


def test_pods_that_wait_for_a_shape_are_given_up_soon_after_the_shape_is(scheduler, asked):
    first, second = asked
    for _ in range(3):
        reply = decided(scheduler, first, pods=8)
        assert not reply.to_terminate
        assert not reply.to_launch
        scheduler.clock.now += 600
    assert not decided(scheduler, second, pods=8).to_terminate
    scheduler.clock.now += 61
    reply = decided(scheduler, second, pods=8)
    assert [one.instance_type for one in reply.to_terminate] == ["train"] * 8
    assert launched(reply) == {"train-v5e-4x4": 4}
