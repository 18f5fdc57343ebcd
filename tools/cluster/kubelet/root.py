"""What a container sees as its file system: this machine's, with a layer of its own over it.

Whatever a container writes is gone with it, and touches nothing of this machine: the layer is in
memory, /tmp a folder of the container. Devices of this machine are not there. Pure: the shell
script that `process` runs in the container's namespaces.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

LAYER_SIZE = "2g"
"""At most, of what a container writes outside its volumes and /tmp. Memory when it is written."""
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")

_SWITCH = """\
set -e
container_path=$PATH
PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t tmpfs -o size={size} layer {stage}
cd {stage}
mkdir upper work root
mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work overlay root
cd root
mkdir .host
pivot_root . .host
cd /
mount -t proc proc /proc
mount -t sysfs -o ro sysfs /sys
mount -t tmpfs -o mode=755 run /run
mkdir -m 1777 /run/lock
mount -t tmpfs -o mode=755 dev /dev
mkdir /dev/pts /dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts /dev/pts
ln -s pts/ptmx /dev/ptmx
ln -s /proc/self/fd /dev/fd
ln -s /proc/self/fd/0 /dev/stdin
ln -s /proc/self/fd/1 /dev/stdout
ln -s /proc/self/fd/2 /dev/stderr
"""
# Standard input is the pipe on which the agent hears that all of this went well.
_START = """\
umount -l /.host
rmdir /.host
mkdir -p {cwd}
cd {cwd}
PATH=$container_path
command -v "$1" > /dev/null || {{ echo "exec: $1: executable file not found in PATH"; exit 127; }}
unset OLDPWD
echo ok >&0
exec "$@" </dev/null
"""


@dataclass(frozen=True)
class Mount:
    """A file or folder of this machine in a container."""

    source: Path
    target: str
    read_only: bool = False


@dataclass(frozen=True)
class Root:
    """One container's file system."""

    stage: Path
    """An empty folder of this machine, on which it is put together."""
    files: Mapping[str, str]
    """Small files by their place, such as /etc/hosts."""
    mounts: Sequence[Mount]
    shared_memory: Path
    """The folder that is /dev/shm for all containers of the pod."""
    working_dir: str

    def script(self) -> str:
        """Takes the program and its arguments as the script's own."""
        return "\n".join(
            [
                _SWITCH.format(stage=shlex.quote(str(self.stage)), size=LAYER_SIZE),
                *self._devices(),
                *self._files(),
                # Of two that lie in each other, the outer one first.
                *(line for mount in sorted(self.mounts, key=_depth) for line in _bind(mount)),
                _START.format(cwd=shlex.quote(self.working_dir)),
            ]
        )

    def _devices(self) -> Iterator[str]:
        for name in DEVICES:
            yield f"touch /dev/{name}"
            yield f"mount --bind /.host/dev/{name} /dev/{name}"
        yield from _bind(Mount(self.shared_memory, "/dev/shm"))  # noqa: S108 # the pod's own

    def _files(self) -> Iterator[str]:
        for place, text in self.files.items():
            yield f"rm -f {place}"  # a link of this machine's leads elsewhere
            yield f"printf %s {shlex.quote(text)} > {place}"


def _bind(mount: Mount) -> Iterator[str]:
    target = shlex.quote(mount.target)
    if mount.source.is_dir():
        yield f"mkdir -p {target}"
    else:
        yield f"mkdir -p {shlex.quote(str(PurePosixPath(mount.target).parent))}"
        yield f"touch {target}"
    options = " -o ro" if mount.read_only else ""
    yield f"mount --bind{options} {shlex.quote(f'/.host{mount.source.resolve()}')} {target}"


def _depth(mount: Mount) -> int:
    return len(PurePosixPath(mount.target).parts)
