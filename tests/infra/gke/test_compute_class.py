"""A slice's capacity as a ComputeClass, rung for rung, and what is wrong with those of others."""

import copy

import pytest

from infra.gke.class_faults import faults
from infra.gke.compute_class import class_name, compute_class
from tests.infra.ray.stacks import SERVE, TRAIN, cluster_of, gke, made, shipped


def class_of(config):
    return compute_class(config, config.slices[0])


def ladder(*capacity, topology="4x4", machine="ct6e-standard-4t", **changes):
    tpu = {
        "name": "train",
        "machine_type": machine,
        "topology": topology,
        "capacity": [*capacity],
        "provision": "compute_class",
    }
    return class_of(gke([tpu], [], **changes))["spec"]["priorities"]


def test_a_ladder_keeps_the_users_order_and_says_all_that_gke_would_guess():
    found = class_of(shipped("staging"))
    assert found["metadata"] == {"name": "raytpu-staging-train"}
    spec = found["spec"]
    assert spec["whenUnsatisfiable"] == "DoNotScaleUp"
    assert spec["nodePoolAutoCreation"] == {"enabled": True}
    shape = {"type": "tpu-v6e-slice", "count": 4, "topology": "4x4"}
    assert all(priority["tpu"] == shape for priority in spec["priorities"])
    rungs = [
        (
            priority["spot"],
            priority["flexStart"]["enabled"],
            priority.get("maxRunDurationSeconds"),
            priority.get("reservations", {}).get("affinity"),
            priority.get("location", {}).get("zones"),
        )
        for priority in spec["priorities"]
    ]
    assert rungs == [
        (True, False, None, "None", ["us-east5-b"]),
        (True, False, None, "None", ["us-east5-a"]),
        (False, True, 259_200, None, ["us-east5-b"]),
        (False, True, 259_200, None, ["us-east5-a"]),
        (False, False, None, "Specific", None),
        (False, False, None, "None", ["us-east5-b"]),
        (False, False, None, "None", ["us-east5-a"]),
    ]


def test_a_reservation_is_named_with_its_project_and_where_the_version_allows_with_its_zone():
    rung = {"reservation": {"name": "r", "zone": "us-east5-b"}}
    (new,) = ladder(rung)
    assert new["reservations"] == {
        "affinity": "Specific",
        "specific": [{"name": "r", "project": "acme-ml", "zones": ["us-east5-b"]}],
    }
    assert "location" not in new
    for cluster in ({"version": "1.34.1-gke.3758999"}, {"version": None}):
        (old,) = ladder(rung, cluster=cluster)
        assert old["reservations"]["specific"] == [{"name": "r", "project": "acme-ml"}]


def test_a_shared_reservation_is_named_with_its_owner():
    (priority,) = ladder({"reservation": {"name": "r", "project": "owner-ml"}}, topology="2x2")
    assert priority["reservations"]["specific"] == [{"name": "r", "project": "owner-ml"}]


def test_parts_of_a_reservation_are_nested():
    rung = {"reservation": {"name": "r", "block": "b", "sub_block": "s"}}
    (priority,) = ladder(rung, topology="2x2")
    assert priority["reservations"]["specific"] == [
        {
            "name": "r",
            "project": "acme-ml",
            "reservationBlock": {"name": "b", "reservationSubBlock": {"name": "s"}},
        }
    ]


# machine type, topology: type, count of one host, machine type if it must be said, boot disk
SHAPES = """
ct4p-hightpu-4t   2x2x2  tpu-v4-podslice       4  -                  -
ct5lp-hightpu-1t  1x1    tpu-v5-lite-podslice  1  -                  pd-balanced
ct5lp-hightpu-4t  4x4    tpu-v5-lite-podslice  4  -                  pd-balanced
ct5lp-hightpu-8t  2x4    tpu-v5-lite-podslice  8  -                  pd-balanced
ct5p-hightpu-4t   2x2x4  tpu-v5p-slice         4  -                  -
ct6e-standard-4t  2x4    tpu-v6e-slice         4  -                  hyperdisk-balanced
ct6e-standard-8t  2x4    tpu-v6e-slice         8  -                  hyperdisk-balanced
ct6e-standard-4t  4x8    tpu-v6e-slice         4  -                  hyperdisk-balanced
tpu7x-standard-4t 2x2x2  tpu7x                 4  tpu7x-standard-4t  hyperdisk-balanced
tpu7x-ultranet-4t 2x2x1  tpu7x                 4  tpu7x-ultranet-4t  hyperdisk-balanced
"""


@pytest.mark.parametrize("row", SHAPES.strip().splitlines(), ids=lambda row: row[:24])
def test_a_shape_counts_the_chips_of_one_host(row):
    machine, topology, kind, count, named, disk = row.split()
    v4 = kind == "tpu-v4-podslice"  # of which there is one zone
    where = {"location": "us-central2", "zones": ["us-central2-b"]} if v4 else {}
    (priority,) = ladder({"on_demand": {}}, machine=machine, topology=topology, cluster=where)
    assert priority["tpu"] == {"type": kind, "count": int(count), "topology": topology}
    assert priority.get("machineType", "-") == named
    assert priority["storage"].get("bootDiskType", "-") == disk


def test_every_rung_of_several_tpu7x_hosts_names_the_policy_that_holds_them_together():
    config = shipped("tpu7x")
    priorities = class_of(config)["spec"]["priorities"]
    assert [p["placement"] for p in priorities] == 2 * [{"policyName": "raytpu-tpu7x-train"}]
    (single,) = ladder({"spot": {}}, machine="tpu7x-standard-4t", topology="2x2x1")
    assert "placement" not in single


def test_several_shapes_are_one_class_that_each_group_selects_with_its_topology():
    config = shipped("two-shapes")
    priorities = class_of(config)["spec"]["priorities"]
    assert [tuple(p["tpu"].values()) for p in priorities] == [
        ("tpu-v6e-slice", 4, "4x8"),
        ("tpu-v5-lite-podslice", 4, "4x4"),
    ]
    groups = cluster_of(made(config)["RayCluster/interactive"].manifest)["workerGroupSpecs"]
    selectors = [group["template"]["spec"]["nodeSelector"] for group in groups]
    assert [s["cloud.google.com/compute-class"] for s in selectors] == 2 * [
        "raytpu-two-shapes-train"
    ]
    assert [s["cloud.google.com/gke-tpu-topology"] for s in selectors] == ["4x8", "4x4"]
    assert faults(class_of(config), groups) == []


@pytest.mark.parametrize(
    ("count", "workloads", "moves"),
    [
        (2, [{**SERVE, "slice": "train"}], True),
        (1, [{**SERVE, "slice": "train"}], False),
        (2, [{**TRAIN, "mesh": {"data": 8, "tensor": 4}}], False),
    ],
    ids=["service of two copies", "service of one copy", "training"],
)
def test_only_a_service_of_several_copies_is_moved_back_up_the_ladder(count, workloads, moves):
    tpu = {
        "name": "train",
        "machine_type": "ct6e-standard-4t",
        "topology": "4x4",
        "count": count,
        "capacity": [{"spot": {}}, {"on_demand": {}}],
    }
    config = gke([tpu], workloads)
    migration = class_of(config)["spec"]["activeMigration"]
    assert migration == {"optimizeRulePriority": moves}
    (workload,) = config.workloads
    kind = "RayService" if workload.kind == "serve" else "RayJob"
    cluster = cluster_of(made(config)[f"{kind}/{workload.name}"].manifest)
    annotations = cluster["workerGroupSpecs"][0]["template"]["metadata"]["annotations"]
    kept = annotations.get("cluster-autoscaler.kubernetes.io/safe-to-evict")
    assert kept == (None if moves else "false")


def test_classes_of_stacks_of_one_cluster_do_not_meet():
    names = {class_name(config, config.slices[0]) for config in map(shipped, ["staging", "tpu7x"])}
    assert names == {"raytpu-staging-train", "raytpu-tpu7x-train"}
    prod = shipped("prod")
    assert class_name(prod, prod.slices[0]) is None


def test_the_classes_of_all_stacks_are_without_fault():
    for stack in ("staging", "autopilot", "existing", "tpu7x", "two-shapes"):
        config = shipped(stack)
        groups = [
            group
            for one in made(config).values()
            if one.manifest["apiVersion"] == "ray.io/v1"
            for group in cluster_of(one.manifest)["workerGroupSpecs"]
        ]
        for tpu in config.slices:
            if tpu.provision == "compute_class":
                assert faults(compute_class(config, tpu), groups) == [], stack


def written_by_hand(**changes):
    """A class as people publish them, and the group that uses it."""
    priority = {"tpu": {"type": "tpu-v6e-slice", "count": 4, "topology": "4x8"}, "spot": False}
    manifest = {
        "metadata": {"name": "mine"},
        "spec": {
            "whenUnsatisfiable": "DoNotScaleUp",
            "nodePoolAutoCreation": {"enabled": True},
            "priorities": [{**priority, **changes}],
        },
    }
    return manifest, [group()]


def group(**selector):
    chosen = {
        "cloud.google.com/compute-class": "mine",
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "cloud.google.com/gke-tpu-topology": "4x8",
    }
    limits = {"google.com/tpu": "4"}
    spec = {
        "nodeSelector": {**chosen, **selector},
        "containers": [{"resources": {"limits": limits}}],
    }
    return {"groupName": "workers", "numOfHosts": 8, "template": {"spec": spec}}


def said(manifest, groups):
    return [str(fault) for fault in faults(manifest, groups)]


def test_a_sound_class_passes():
    assert said(*written_by_hand()) == []


AT = "spec.priorities[0]"
SPECIFIC = {"affinity": "Specific", "specific": [{"name": "r"}]}
IN_BLOCK = (
    f"{AT}.reservations.specific[0].reservationBlock.name: the reservation's own name "
    f"belongs elsewhere; write it as {AT}.reservations.specific[0].name, "
    "and a block only if you mean one"
)
# What a priority says, and the line that it earns.
WRONG = [
    (
        {"tpu": {"type": "tpu-v6e-slice", "count": 8, "topology": "4x8"}},
        (
            f"{AT}.tpu.count: 8 is no host's chips; "
            "write 4: the chips of one host of tpu-v6e-slice 4x8"
        ),
    ),
    (
        {"tpu": {"type": "tpu-v6e-slice", "count": 32, "topology": "4x8"}},
        (
            f"{AT}.tpu.count: 32 is all chips of the slice; "
            "write 4: the chips of one host of tpu-v6e-slice 4x8"
        ),
    ),
    (
        {"tpu": {"type": "tpu-v6e-slice", "topology": "4x8"}},
        f"{AT}.tpu: leaves count to be guessed; write type, count and topology",
    ),
    (
        {"tpu": {"type": "tpu-v6e-slice", "count": 4, "topology": "2x2x2"}},
        f"{AT}.tpu.topology: '2x2x2' is no topology of tpu-v6e-slice; use one that GKE lists",
    ),
    (
        {"tpu": {"type": "tpu-v6e-slice", "count": 4, "topology": "4x4"}},
        (
            f"{AT}.tpu: offers tpu-v6e-slice 4x4 4, which no worker group of the class can use; "
            "offer tpu-v6e-slice 4x8 4, or add a group for it"
        ),
    ),
    (
        {"reservations": {"specific": [{"name": "r", "affinity": "Specific"}]}},
        (
            f"{AT}.reservations.specific[0].affinity: is no field of one reservation; "
            f"write it one level up, in {AT}.reservations"
        ),
    ),
    (
        {
            "reservations": {
                **SPECIFIC,
                "specific": [{"name": "r", "reservationBlock": {"name": "r"}}],
            }
        },
        IN_BLOCK,
    ),
    (
        {"reservations": {**SPECIFIC, "specific": [{"reservationBlock": {"name": "r"}}]}},
        IN_BLOCK,
    ),
    (
        {"reservations": SPECIFIC, "location": {"zones": ["us-east5-b"]}},
        (
            f"{AT}.location.zones: GKE takes none beside a specific reservation, not even by "
            f"priorityDefaults; write them as {AT}.reservations.specific[].zones"
        ),
    ),
    (
        {"reservations": {"affinity": "AnyBestEffort"}},
        (
            f"{AT}.reservations.affinity: 'AnyBestEffort' is not offered for TPUs; "
            "write Specific and name the reservation, or None"
        ),
    ),
    (
        {"flexStart": {"enabled": True}, "spot": True},
        f"{AT}: asks for flex-start and spot at once; make two priorities of it",
    ),
    (
        {"flexStart": {"enabled": True}, "reservations": SPECIFIC},
        f"{AT}: asks for flex-start and a reservation at once; make two priorities of it",
    ),
    (
        {"flexStart": {"enabled": True}, "maxRunDurationSeconds": 864_000},
        f"{AT}.maxRunDurationSeconds: 864000 is no run that flex-start offers; use 600 to 604800",
    ),
    (
        {"location": {"zones": ["us-east5-a", "us-east5-b"]}},
        (
            f"{AT}.location.zones: us-east5-a, us-east5-b cannot hold one slice of several hosts; "
            "make one priority of each zone"
        ),
    ),
]


@pytest.mark.parametrize(("change", "line"), WRONG, ids=[line[:70] for _, line in WRONG])
def test_a_class_that_gke_accepts_and_never_serves_is_refused_with_what_would_be_right(
    change, line
):
    assert line in said(*written_by_hand(**change))


def test_a_priority_that_leaves_spot_out_is_refused():
    manifest, groups = written_by_hand()
    del manifest["spec"]["priorities"][0]["spot"]
    assert said(manifest, groups) == [
        f"{AT}.spot: is left out, and so matches spot nodes too; write true or false"
    ]


def test_zones_by_default_collide_with_a_reservation_too():
    manifest, groups = written_by_hand(reservations=SPECIFIC)
    manifest["spec"]["priorityDefaults"] = {"location": {"zones": ["us-east5-b"]}}
    assert "not even by priorityDefaults" in said(manifest, groups)[0]


def test_tpu7x_without_a_placement_policy_is_refused():
    shape = {"type": "tpu7x", "count": 4, "topology": "2x2x2"}
    manifest, _ = written_by_hand(tpu=shape)
    assert said(manifest, []) == [
        (
            f"{AT}.placement: tpu7x hosts are held together by a workload policy, "
            "and none is named; write placement.policyName on every priority"
        )
    ]


def test_a_class_that_makes_no_nodes_or_ordinary_ones_is_refused():
    manifest, groups = written_by_hand()
    manifest["spec"] |= {"whenUnsatisfiable": "ScaleUpAnyway", "nodePoolAutoCreation": {}}
    assert [fault.where for fault in faults(manifest, groups)] == [
        "spec.whenUnsatisfiable",
        "spec.nodePoolAutoCreation",
    ]


def test_a_pod_may_neither_pin_a_node_pool_nor_only_prefer_its_class():
    manifest, _ = written_by_hand()
    pinned = group(**{"cloud.google.com/gke-nodepool": "a", "cloud.google.com/gke-spot": "true"})
    assert [fault.split(";")[0] for fault in said(manifest, [pinned])] == [
        f"group 'workers': selects cloud.google.com/{label} beside a compute class, "
        "which leaves it no other rung"
        for label in ("gke-nodepool", "gke-spot")
    ]
    wish = copy.deepcopy(group())
    chosen = wish["template"]["spec"]["nodeSelector"].pop("cloud.google.com/compute-class")
    term = {"key": "cloud.google.com/compute-class", "operator": "In", "values": [chosen]}
    preferred = [{"weight": 1, "preference": {"matchExpressions": [term]}}]
    wish["template"]["spec"]["affinity"] = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
    }
    assert said(manifest, [wish]) == [
        (
            "group 'workers': only prefers its compute class, so GKE makes no nodes for it; "
            "select cloud.google.com/compute-class in nodeSelector"
        )
    ]


def test_a_group_with_another_number_of_hosts_than_the_webhook_counts_is_refused():
    manifest, _ = written_by_hand()
    assert said(manifest, [{**group(), "numOfHosts": 4}]) == [
        "group 'workers': numOfHosts is 4, but 4x8 of 4 chips a host takes 8; write 8"
    ]
