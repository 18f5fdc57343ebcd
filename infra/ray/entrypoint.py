"""The command of a job, in a form that survives the way to its process.

The Ray operator puts it into a shell line of the submitter's pod as it is. There `ray job submit`
receives its words and joins them by subprocess.list2cmdline, which quotes for Windows; a second
shell reads the result. JSON comes through if it has a space, so that it is quoted at all, and none
of the characters that are special within double quotes.
"""

import json
import shlex
from dataclasses import asdict
from typing import Any

from infra.config import InferSpec, JobSpec, StackConfig, TrainSpec
from infra.ray import places

_SPECIAL = {"\\\\": "\\u005c", "$": "\\u0024", "`": "\\u0060"}


def entrypoint(config: StackConfig, workload: JobSpec) -> str:
    arguments = {
        "settings": shell_json(workload.settings().model_dump(mode="json")),
        "output": places.output(config, workload),
    }
    if isinstance(workload, TrainSpec | InferSpec):
        contract = config.slice(workload.slice).contract()
        arguments["slice"] = shell_json(asdict(contract))
    if isinstance(workload, TrainSpec):
        arguments["corpus"] = places.corpus(config, workload)
    if isinstance(workload, InferSpec):
        arguments["model"] = places.MODEL_PATH
    words = [word for name, value in arguments.items() for word in (f"--{name}", value)]
    return shlex.join(["python", "-m", f"workloads.{workload.kind}.main", *words])


def shell_json(value: Any) -> str:
    """JSON that two shells and list2cmdline leave as it is; `value` is a mapping with a key."""
    text = json.dumps(value)
    for character, escape in _SPECIAL.items():
        text = text.replace(character, escape)
    return text
