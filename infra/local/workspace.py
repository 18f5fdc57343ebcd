"""Where a local stack keeps its files, and the mark by which its processes are known."""

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from infra.errors import LocalError
from infra.local.ray_node import NodePaths

MIN_FREE_GIB = 2
"""Below it Ray stops spilling objects and checkpoints fail half way."""

_SHORT_TMP = Path("/tmp")  # noqa: S108 # not $TMPDIR: a socket's path has at most 107 bytes
_KEPT_RUNS = 3


@dataclass(frozen=True)
class Workspace:
    """The folders of one stack of one checkout."""

    root: str
    """The project's folder."""
    stack: str
    storage: str
    """Data, checkpoints and models: they stay when the stack is destroyed. Absolute."""

    @classmethod
    def of(cls, props: Mapping[str, Any]) -> Self:
        return cls(props["root"], props["stack"], props["storage"])

    def props(self) -> dict[str, str]:
        return asdict(self)

    @property
    def mark(self) -> str:
        """Unique to checkout, stack and user; the same in each run, so a crash loses nothing."""
        identity = f"{self.root}\0{self.stack}\0{os.getuid()}"
        return f"raytpu-{hashlib.sha256(identity.encode()).hexdigest()[:10]}"

    def mark_of(self, name: str) -> str:
        return f"{self.mark}/{name}"

    @property
    def folder(self) -> Path:
        return Path(self.root) / ".raytpu" / self.stack

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def temp_dir(self) -> Path:
        return _SHORT_TMP / self.mark

    def node(self, name: str) -> NodePaths:
        return NodePaths(self._node_dir(name), self.logs / f"{name}.log")

    def exists(self) -> bool:
        return self.temp_dir.is_dir() and self.folder.is_dir()

    def prepare(self) -> None:
        """Raises LocalError when a folder cannot be made, is another user's, or is nearly full."""
        for folder in (self.folder, self.logs, Path(self.storage), self.temp_dir):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise LocalError(
                    f"{folder}: cannot be made ({error.strerror}); "
                    "point raytpu:cluster.storage to a folder you own"
                ) from None
            _check_space(folder)
        if self.temp_dir.stat().st_uid != os.getuid():
            raise LocalError(f"{self.temp_dir}: belongs to another user; remove it")
        self.temp_dir.chmod(0o700)  # Ray's sockets have no other guard

    def keep_logs(self, name: str) -> None:
        """Moves the log files of a node that has ended to `logs`; the rest of its session goes."""
        node_dir = self._node_dir(name)
        for session in sorted(node_dir.glob("session_2*")):
            kept = self.logs / name / session.name
            if (session / "logs").is_dir():
                kept.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(session / "logs", kept)
        shutil.rmtree(node_dir, ignore_errors=True)
        for old in sorted((self.logs / name).glob("session_2*"))[:-_KEPT_RUNS]:
            shutil.rmtree(old, ignore_errors=True)

    def clear(self) -> None:
        """Removes all that only running processes need."""
        shutil.rmtree(self.temp_dir, ignore_errors=True)

    def _node_dir(self, name: str) -> Path:
        return self.temp_dir / hashlib.sha256(name.encode()).hexdigest()[:6]


def _check_space(folder: Path) -> None:
    free_gib = shutil.disk_usage(folder).free / 2**30
    if free_gib < MIN_FREE_GIB:
        raise LocalError(
            f"{folder}: {free_gib:.1f} GiB free, {MIN_FREE_GIB} needed; "
            "free some, or point raytpu:cluster.storage to another disk"
        )
