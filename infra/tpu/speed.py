"""How fast a chip computes, reads its memory and talks: what a step's time is estimated from.

Vendor's peaks, read 2026-11 on the Cloud TPU pages "TPU v4", "TPU v5e", "TPU v5p", "TPU v6e" and
"TPU7x (Ironwood)". Of high confidence except:

- ICI of v4: the page has no figure of today's kind. An older one said 2400 Gbit/s, counting one
  direction as it did for v5e and v5p (1600 and 4800), whose figures have since been doubled to 400
  and 1200 GB/s. So v4's is twice 300. Medium.
- Network of v5e: two 100 Gbit/s cards a host of 8 chips, from that page. Medium: its 4-chip and
  1-chip hosts are taken to have the same share.
- Network of v4: no figure was found, so none is given.

What a program reaches is less: the JAX team's book on scaling reckons with nine tenths of ICI.
"""

from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Speed:
    """Peaks of one chip."""

    bf16_tflops: int
    """Matrix products of bfloat16; those of float32 are made of several of them."""
    hbm_gb_per_s: float
    ici_gb_per_s: float
    """Links to all neighbours, both directions together."""
    ici_axes: int
    """Dimensions of the interconnect; a chip has two links in each."""
    dcn_gbit_per_s: float | None
    """Its share of the network between slices; None if it is not known."""

    @property
    def flops_per_s(self) -> float:
        return self.bf16_tflops * 1e12

    @property
    def hbm_bytes_per_s(self) -> float:
        return self.hbm_gb_per_s * 1e9

    @property
    def axis_bytes_per_s(self) -> float:
        """What a chip takes in along one axis, from both of its neighbours at once."""
        return self.ici_gb_per_s * 1e9 / (2 * self.ici_axes)

    @property
    def dcn_bytes_per_s(self) -> float | None:
        return None if self.dcn_gbit_per_s is None else self.dcn_gbit_per_s * 1e9 / 8


SPEEDS = MappingProxyType(
    {
        "v4": Speed(275, 1200, 600, ici_axes=3, dcn_gbit_per_s=None),
        "v5e": Speed(197, 819, 400, ici_axes=2, dcn_gbit_per_s=25),
        "v5p": Speed(459, 2765, 1200, ici_axes=3, dcn_gbit_per_s=50),
        "v6e": Speed(918, 1638, 800, ici_axes=2, dcn_gbit_per_s=100),
        "tpu7x": Speed(2307, 7380, 1200, ici_axes=3, dcn_gbit_per_s=100),
    }
)
"""By the generation's short name."""
