"""Small files on local disks and object stores, by one name: a path or a URL like gs://bucket/key."""

import json
import os
import uuid
from pathlib import Path

import fsspec
from fsspec.implementations.local import LocalFileSystem

_LISTINGS = {"use_listings_cache": False}
ENVIRONMENT = {"FSSPEC_GS": json.dumps(_LISTINGS)}
"""For all processes of a job, where libraries list buckets too. By default each remembers for ever
what it has listed, and takes a checkpoint that another wrote since for one that is not there."""

HALF_WRITTEN = ".part"
"""End of the name of a local file that is not whole yet."""


def filesystem(url: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """The file system of `url` and the path in it."""
    fs, path = fsspec.core.url_to_fs(url, **_LISTINGS)
    return fs, path


def absolute(url: str) -> str:
    """`url` as any process of any working directory understands it."""
    fs, path = filesystem(url)
    return path if isinstance(fs, LocalFileSystem) else url


def join(url: str, *parts: str) -> str:
    return "/".join((url.rstrip("/"), *parts))


def read_text(url: str) -> str:
    """Raises FileNotFoundError."""
    fs, path = filesystem(url)
    return str(fs.read_text(path, encoding="utf-8"))


def write_atomically(url: str, content: str | bytes) -> None:
    """Whoever reads `url` sees the old content or the new one, never a part."""
    data = content.encode() if isinstance(content, str) else content
    fs, path = filesystem(url)
    if not isinstance(fs, LocalFileSystem):
        fs.pipe_file(path, data)  # an object appears when its upload is complete
        return
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.{uuid.uuid4().hex}{HALF_WRITTEN}")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(target)


def remove(url: str) -> None:
    """Removes a file or a folder with all it holds; nothing there is no error."""
    fs, path = filesystem(url)
    if fs.exists(path):
        fs.rm(path, recursive=True)
