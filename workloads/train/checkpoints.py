"""Checkpoints of a run: parameters and optimizer by step, on storage that all hosts share."""

from types import TracebackType
from typing import Any, Self

from workloads.data import storage
from workloads.train.step import State

COUNTED_S = "counted_s"


def latest_step(url: str) -> int:
    """The newest finished checkpoint's step, or 0 if there is none. Starts no JAX backend."""
    from orbax.checkpoint import utils

    fs, path = storage.filesystem(url)
    return max(utils.checkpoint_steps(url), default=0) if fs.exists(path) else 0


class Checkpoints:
    """Saves in the background; every process of the run must make the same calls."""

    def __init__(self, url: str, keep: int) -> None:
        import orbax.checkpoint as ocp
        from orbax.checkpoint.checkpoint_managers import LatestN

        self._args = ocp.args
        options = ocp.CheckpointManagerOptions(
            preservation_policy=LatestN(keep),
            # In the background, a folder that cannot be made is told to nobody: all hosts wait
            # for a signal that it is there, 20 minutes long (orbax 0.12).
            async_options=ocp.AsyncOptions(create_directories_asynchronously=False),
        )
        self._manager = ocp.CheckpointManager(url, options=options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:  # after an error the other hosts may be gone, and closing waits for them
            self._manager.close()

    def wait(self) -> None:
        """Until all that was saved is on storage."""
        self._manager.wait_until_finished()

    def check(self) -> None:
        """Raises what has gone wrong in the background. Without it, the next save would."""
        self._manager.check_for_errors()

    def save(self, step: int, state: State, counted_s: float = 0.0) -> None:
        """`counted_s`: what went into the steps up to this one, all attempts together."""
        tree: dict[str, Any] = {"params": state.params, "optimizer": state.optimizer}
        told = {COUNTED_S: counted_s}
        self._manager.save(step, args=self._args.StandardSave(tree), custom_metadata=told)

    def restore(self, step: int, like: State) -> State:
        """The state of `step`, placed as `like` is: shapes with shardings."""
        tree: dict[str, Any] = {"params": like.params, "optimizer": like.optimizer}
        return State(**self._manager.restore(step, args=self._args.StandardRestore(tree)))

    def counted_s(self, step: int) -> float:
        """As it was saved with `step`."""
        return self._manager.metadata(step).custom_metadata[COUNTED_S]
