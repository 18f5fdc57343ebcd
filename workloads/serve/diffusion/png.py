"""Pictures as PNG files (RFC 2083): 8 bits of red, green and blue, which zlib packs."""

import struct
import zlib

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_RGB, _BITS = 2, 8


def encode(pixels_hwc: np.ndarray) -> bytes:
    """Of pixels (height, width, 3) in uint8."""
    height, width, _ = pixels_hwc.shape
    header = struct.pack(">IIBBBBB", width, height, _BITS, _RGB, 0, 0, 0)
    # Each line begins with the filter it has gone through: 0 is none.
    lines = np.pad(pixels_hwc.reshape(height, -1), ((0, 0), (1, 0)))
    data = zlib.compress(lines.tobytes())
    return SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)
