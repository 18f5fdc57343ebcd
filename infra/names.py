"""Names of slices and workloads, short enough for all that is made from them.

A workload's name becomes a RayJob or RayService, a slice's name a worker group and a node pool.
KubeRay appends 6 characters for the cluster of a RayJob, and Google's TPU webhook cuts what is made
of a cluster's name after 41: the hosts of a longer one look for each other at a service that does
not exist. A node pool's name may have 40, with a number appended.
"""

import re
from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

NAME_LIMIT = 35

_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_BUCKET = re.compile(r"gs://[a-z0-9][-_.a-z0-9]{1,61}[a-z0-9](/.*)?")
_PLAIN_BUCKET = re.compile(r"gs://[-_.a-z0-9]+(/[-_.=@+A-Za-z0-9]+)*/*")


def _checked(name: str) -> str:
    if len(name) > NAME_LIMIT:
        raise fault(
            f"has {len(name)} characters, and longer names than {NAME_LIMIT} break the host names "
            "that KubeRay makes of them",
            f"shorten it to {NAME_LIMIT}",
        )
    if not is_name(name):
        raise fault(
            "cannot name a Kubernetes object",
            "use a-z, 0-9 and '-', starting with a letter and ending with a letter or digit",
        )
    return name


def is_name(text: str) -> bool:
    """Whether the text is a DNS-1035 label, of any length."""
    return _DNS_1035.fullmatch(text) is not None


def is_in_bucket(url: str) -> bool:
    """Whether the text is a bucket's address, or one of something in it."""
    return _BUCKET.fullmatch(url) is not None


def checked_bucket(url: str) -> str:
    """A validator's: a folder of a bucket, in characters that shells and mount options leave alone.

    Raises the fault of a validator for anything else.
    """
    if not is_in_bucket(url):
        raise fault("is no bucket that all hosts can reach", "write one such as gs://NAME/FOLDER")
    if not _PLAIN_BUCKET.fullmatch(url):
        fix = "use a-z, A-Z, 0-9 and any of - _ . = @ + between single slashes"
        raise fault("has characters that no command line keeps", fix)
    return url.rstrip("/")


def fault(what: str, fix: str) -> PydanticCustomError:
    """What a validator raises: the predicate of the value at fault, and the way out."""
    return PydanticCustomError("user", "{what}", {"what": what, "fix": fix})


def matching(pattern: str, what: str, fix: str) -> AfterValidator:
    """Refuses text that is not wholly of the pattern."""
    form = re.compile(pattern)

    def checked(text: str) -> str:
        if not form.fullmatch(text):
            raise fault(what, fix)
        return text

    return AfterValidator(checked)


def _not_empty(values: tuple[object, ...]) -> tuple[object, ...]:
    if not values:
        raise fault("is empty", "write one or more")
    return values


Project = Annotated[
    str,
    matching(
        r"[a-z][-a-z0-9]{4,28}[a-z0-9]",
        "is no project id",
        "write the id that Google shows, such as acme-ml",
    ),
]

NOT_EMPTY = AfterValidator(_not_empty)
"""For a list: pydantic's own least length also counts what is at fault as missing."""

Name = Annotated[str, AfterValidator(_checked)]
"""A DNS-1035 label of at most NAME_LIMIT characters."""
