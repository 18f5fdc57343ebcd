"""Work on many items at once, spread over the cluster by Ray Data."""

import pickle
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def on_cluster(items: Sequence[Item], work: Callable[[int, Item], Result]) -> list[Result]:
    """The result of `work` for the number of each item and the item, in their order."""
    import ray.data

    def job(row: dict[str, Any]) -> dict[str, Any]:
        return {"id": row["id"], "result": pickle.dumps(work(row["id"], items[row["id"]]))}

    rows = ray.data.range(len(items), override_num_blocks=len(items)).map(job).take_all()
    results = sorted(rows, key=lambda row: row["id"])
    return [pickle.loads(row["result"]) for row in results]  # noqa: S301 # pickled in `job`
