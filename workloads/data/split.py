"""Which documents training never sees: decided by a document's own text and the seed.

The same text is on the same side wherever it stands, so neither the order of files nor the number
of blocks matters, and a copy of a training document is never held out.
"""

import hashlib

KEYS = 2**62
"""Keys are below this, so that they fit a signed 64-bit column."""


def key(text: str, seed: int) -> int:
    """A number in [0, KEYS), uniform over texts."""
    salt = seed.to_bytes(8, "big", signed=True)
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8, salt=salt)
    return int.from_bytes(digest.digest(), "big") % KEYS


def threshold(fraction: float, smallest: int, largest: int) -> int:
    """Documents with a smaller key are held out. With two different keys, each side has one.

    Raises ValueError if all keys are the same.
    """
    if smallest == largest:
        raise ValueError("all documents are the same text")
    wanted = int(fraction * KEYS)
    return min(max(wanted, smallest + 1), largest)
