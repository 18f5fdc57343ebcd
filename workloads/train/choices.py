"""The same run on another slice than it was written for. Imports neither Ray nor JAX.

The batch and what is learned of it stay; how it is computed follows from the devices.
"""

from math import gcd

from workloads.contract import SliceContract, told_devices
from workloads.errors import UserError
from workloads.settings import TrainMesh, TrainSettings


def settings_on(settings: TrainSettings, contract: SliceContract) -> TrainSettings:
    """`settings` with a mesh for these slices, and a batch in parts no larger than before.

    The tensor axis stays. Of the other devices of a slice fsdp takes as many as it had or, if those
    do not share out, what it can of them; data takes the rest. Raises UserError where the tensor
    axis does not divide a slice.
    """
    tensor, fsdp = settings.mesh.tensor, settings.mesh.fsdp
    if contract.devices_per_slice % tensor:
        devices = told_devices(contract.devices_per_slice, contract.devices_per_chip)
        raise UserError(
            f"mesh.tensor: {tensor} does not divide the {devices} of {contract.name}; use "
            "a divisor, or leave that slice out"
        )
    fsdp = gcd(fsdp, contract.devices_per_slice // tensor)
    mesh = TrainMesh(data=contract.devices // (fsdp * tensor), fsdp=fsdp, tensor=tensor)
    accumulated = _parts(settings, mesh)
    return settings.model_copy(update={"mesh": mesh, "gradient_accumulation_steps": accumulated})


def _parts(settings: TrainSettings, mesh: TrainMesh) -> int:
    """The fewest that leave a device with no more rows at once than it was declared to have."""
    declared = settings.gradient_accumulation_steps * settings.mesh.batch_parts
    at_once = max(1, settings.global_batch // declared)
    rows = max(1, settings.global_batch // mesh.batch_parts)
    most = max(n for n in range(1, min(at_once, rows) + 1) if rows % n == 0)
    return rows // most
