"""Each way in which a host can be wrong or slow names that host, and a sound slice nobody."""

import itertools
from dataclasses import replace

import pytest
from jax.experimental import topologies

from tests.workloads.simulated import CONTRACT
from workloads.check import report as reports
from workloads.check.host import as_device
from workloads.check.measure import Timing
from workloads.check.report import Collective, Device, HostReport, Report

SLICE = replace(CONTRACT, topology="2x2x4", hosts=4)
VERSIONS = {"ray": "2.60.0", "jax": "0.10.2"}


def host(number, **changes):
    """Host `number` of a v5p 2x2x4: a layer of 2x2 chips."""
    plain = {
        "host": f"host {number} of big-0 (big-0-{number}, 10.0.0.{number})",
        "slice_index": 0,
        "worker_id": number,
        "address": f"10.0.0.{number}",
        "process": number,
        "versions": VERSIONS,
        "devices": tuple(
            Device(id=4 * number + i, platform="tpu", kind="TPU v5p", coordinates=(x, y, number))
            for i, (y, x) in enumerate(itertools.product(range(2), range(2)))
        ),
        "products_s": {4 * number + i: 0.002 for i in range(4)},
    }
    return HostReport.model_validate({**plain, **changes})


def hosts(**changed):
    """All four, of which some are changed: `two={...}`."""
    names = ("none", "one", "two", "three")
    return [host(number, **changed.get(name, {})) for number, name in enumerate(names)]


def moved(number, coordinates):
    """The devices of a host, the first of them elsewhere."""
    first, *others = host(number).devices
    return (first.model_copy(update={"coordinates": coordinates}), *others)


def device_faults(**changed):
    return [*reports.device_faults(SLICE, hosts(**changed))]


def test_a_sound_slice_has_no_fault():
    assert device_faults() == []
    assert [*reports.slow_faults(hosts(), 1.5)] == []
    assert [*reports.version_faults(VERSIONS, hosts())] == []


def test_a_host_with_fewer_chips_is_named_and_their_places():
    few, places = device_faults(two={"devices": host(2).devices[:3]})
    assert few.startswith("host 2 of big-0 (big-0-2, 10.0.0.2): has 3 chips, not 4 chips")
    assert "slice big-0 (big-0-0, 10.0.0.0): no chip at (1, 1, 2) of 2x2x4" in places


def test_a_place_that_two_chips_have_names_both_hosts():
    twice, missing = device_faults(three={"devices": moved(3, (0, 0, 1))})
    assert twice.startswith("host 3 of big-0")
    assert "has a chip at (0, 0, 1), as has host 1 of big-0" in twice
    assert "no chip at (0, 0, 3) of 2x2x4" in missing


def test_a_chip_outside_of_the_topology_leaves_a_place_of_it_empty():
    (missing,) = device_faults(none={"devices": moved(0, (5, 5, 5))})
    assert "no chip at (0, 0, 0) of 2x2x4" in missing


def test_a_topology_may_lie_either_way():
    """libtpu may count its longer side as x."""
    turned = [
        one.model_copy(
            update={
                "devices": tuple(
                    device.model_copy(update={"coordinates": (device.coordinates or ())[::-1]})
                    for device in one.devices
                )
            }
        )
        for one in hosts()
    ]
    assert [*reports.device_faults(SLICE, turned)] == []


@pytest.mark.parametrize(
    ("name", "topology", "hosts", "devices", "each"),
    [
        ("v6e:2x4", "2x4", 2, 8, 1),
        ("v5p:2x2x2", "2x2x2", 2, 8, 1),
        ("tpu7x:2x2x1", "2x2x1", 1, 8, 2),  # two devices a chip, at one place
    ],
)
def test_a_slice_as_libtpu_describes_it_is_sound(name, topology, hosts, devices, each):
    """Its own coordinates and cores, which libtpu knows without a TPU."""
    described = topologies.get_topology_desc(name, "tpu").devices
    assert len(described) == devices
    contract = replace(CONTRACT, topology=topology, hosts=hosts, devices_per_chip=each)
    found = [
        host(
            number,
            devices=tuple(as_device(one, None) for one in described if one.process_index == number),
        )
        for number in range(hosts)
    ]
    assert [*reports.device_faults(contract, found)] == []
    without = [one.model_copy(update={"devices": one.devices[2:]}) for one in found]
    assert [*reports.device_faults(contract, without)] != []


def test_a_host_that_shows_one_device_of_each_chip_of_two_is_named():
    """Also where devices say no coordinates, such as those of a CPU."""
    places = itertools.product(range(2), range(2), range(2))
    both = tuple(
        Device(id=i, platform="tpu", kind="TPU7x", coordinates=(x, y, 0), core=core)
        for i, (y, x, core) in enumerate(places)
    )
    contract = replace(CONTRACT, topology="2x2x1", hosts=1, devices_per_chip=2)
    assert [*reports.device_faults(contract, [host(0, devices=both)])] == []
    unplaced = tuple(one.model_copy(update={"coordinates": None}) for one in both)
    assert [*reports.device_faults(contract, [host(0, devices=unplaced)])] == []
    (line,) = reports.device_faults(contract, [host(0, devices=both[::2])])
    assert "has 4 devices, not 8 devices (4 chips of 2); replace that host" in line


def test_another_kind_of_chip_is_named():
    other = tuple(one.model_copy(update={"kind": "TPU v4"}) for one in host(1).devices)
    (line,) = device_faults(one={"devices": other})
    assert line.startswith("host 1 of big-0")
    assert "has TPU v4, and other hosts TPU v5p" in line


def test_a_host_out_of_order_is_named():
    first, second = device_faults(one={"process": 2}, two={"process": 1})
    assert "is process 2 to JAX, not 1" in first
    assert "is process 1 to JAX, not 2" in second


def test_devices_that_do_not_say_where_they_are_are_not_judged_by_it():
    silent = (Device(id=0, platform="cpu", kind="cpu"),) * 4
    names = ("none", "one", "two", "three")
    assert device_faults(**{name: {"devices": silent} for name in names}) == []


def test_another_version_names_host_and_both_versions():
    (line,) = reports.version_faults(VERSIONS, hosts(three={"versions": {**VERSIONS, "jax": "1"}}))
    assert line.startswith("host 3 of big-0 (big-0-3, 10.0.0.3): jax on this host: 1")
    assert "but the head has 0.10.2" in line


@pytest.mark.parametrize(("slow_s", "named"), [(0.0029, False), (0.0031, True)])
def test_a_host_is_too_slow_beyond_the_factor_of_the_others_median(slow_s, named):
    slow = {8: 0.002, 9: slow_s, 10: 0.002, 11: 0.002}
    found = [
        *reports.slow_faults(hosts(two={"products_s": slow}, one={"products_s": {4: 1e-3}}), 1.5)
    ]
    assert bool(found) == named
    if named:
        (line,) = found
        assert line.startswith("host 2 of big-0")
        assert "device 9 takes 3.10 ms for a product of matrices, and others 2.00 ms" in line


def test_hosts_that_share_a_machine_are_not_compared():
    here = {"address": "127.0.0.1"}
    shared = hosts(none=here, one=here, two={**here, "products_s": {8: 1.0}}, three=here)
    assert [*reports.slow_faults(shared, 1.5)] == []


def test_wrong_values_name_who_got_them_and_whose_they_were():
    timing = Timing(
        operation="all_gather", devices=16, size_bytes=2**20, median_s=1, wrong={9: (2, 3)}
    )
    (line,) = reports.wrong_faults("big-0", host(2), timing)
    assert "device 9 got wrong values from all_gather of 1 MiB over big-0" in line
    assert "those of devices 2, 3" in line
    assert line.startswith("host 2 of big-0")


def test_a_collective_is_as_slow_as_for_its_slowest_host():
    timings = [
        Timing(operation="all_reduce", devices=4, size_bytes=10**8, median_s=s) for s in (1, 2)
    ]
    one = reports.collective("big-0", timings)
    assert (one.timing.median_s, one.algorithm_gb_per_s) == (2, 0.05)


def report(found, **changes):
    timing = Timing(operation="all_reduce", devices=16, size_bytes=2**23, median_s=0.001)
    return Report(
        slice="big",
        shape="1 x TPU-V5P 2x2x4, 4 hosts of 4 chips each",
        hosts=tuple(found),
        collectives=(reports.collective("big-0", [timing]),),
        wall_s=12,
        **changes,
    )


def test_the_table_has_a_line_a_host_and_a_collective_in_columns():
    title, header, *rows = reports.lines(report(hosts()))
    assert title == "check of slice big: 1 x TPU-V5P 2x2x4, 4 hosts of 4 chips each"
    assert " ".join(header.split()) == "host process devices kind coordinates HBM GiB product ms"
    assert [row.index("TPU v5p") for row in rows[:4]] == [header.index("kind")] * 4
    assert "(0, 0, 3) (1, 0, 3) (0, 1, 3) (1, 1, 3)" in rows[3]
    assert rows[5].split() == ["all_reduce", "big-0", "8", "1.00", "8.389", "15.729"]
    assert rows[6] == "slice big: sound, in 12 s"


def test_what_devices_do_not_say_is_told_as_such():
    silent = (Device(id=0, platform="cpu", kind="cpu"),)
    names = ("none", "one", "two", "three")
    shared = {name: {"devices": silent, "address": "127.0.0.1"} for name in names}
    told = [*reports.lines(report(hosts(**shared)))]
    assert "coordinates and HBM: not reported by cpu devices" in told
    assert "products: not compared, since there are no hosts on other machines" in told


def test_a_host_that_never_came_so_far_has_dashes_and_the_report_comes_back_from_json():
    bare = HostReport(host="host 0 of a", slice_index=0, worker_id=0, address="10.0.0.1")
    one = Report(slice="a", shape="1 host", hosts=(bare,), faults=("x",), wall_s=1)
    (row,) = [line for line in reports.lines(one) if line.startswith("host 0")]
    assert row.split() == ["host", "0", "of", "a", "-", "0", "-", "-", "-", "-"]
    assert [*reports.lines(one)][-1] == "slice a: faults: 1, in 1 s"
    assert Report.model_validate_json(one.model_dump_json()) == one
    whole = report(hosts())
    assert Report.model_validate_json(whole.model_dump_json()) == whole
    assert isinstance(whole.collectives[0], Collective)
