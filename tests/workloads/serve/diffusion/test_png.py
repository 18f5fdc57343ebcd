"""Files as a reader of another hand sees them."""

import base64
import struct
import zlib

import numpy as np
import pytest

from workloads.serve.diffusion import png

BY_PILLOW = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAAD0lEQVR4nGP4z8DAwPAfAAcAAf9+CLHQAAAAAElFTkSuQmCC"
)
"""Image.new("RGB", (2, 1)) with a red and a blue pixel, saved by Pillow."""


def read(file):
    """Pixels of an RGB file whose lines went through no filter. Fails on anything else."""
    assert file[:8] == bytes.fromhex("89504e470d0a1a0a")
    chunks, at = [], 8
    while at < len(file):
        (size,) = struct.unpack_from(">I", file, at)
        kind, data = file[at + 4 : at + 8], file[at + 8 : at + 8 + size]
        assert struct.unpack_from(">I", file, at + 8 + size)[0] == zlib.crc32(kind + data)
        chunks.append((kind, data))
        at += 12 + size
    assert [kind for kind, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
    width, height, *how = struct.unpack(">IIBBBBB", chunks[0][1])
    assert how == [8, 2, 0, 0, 0]
    lines = np.frombuffer(zlib.decompress(chunks[1][1]), np.uint8).reshape(height, 1 + 3 * width)
    assert not lines[:, 0].any()
    return lines[:, 1:].reshape(height, width, 3)


def test_the_reader_reads_what_pillow_wrote():
    assert read(BY_PILLOW).tolist() == [[[255, 0, 0], [0, 0, 255]]]


@pytest.mark.parametrize("shape", [(1, 1, 3), (2, 5, 3), (64, 32, 3)])
def test_pixels_come_back_as_they_were(shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    np.testing.assert_array_equal(read(png.encode(pixels)), pixels)
