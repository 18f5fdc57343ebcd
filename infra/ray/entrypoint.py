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

from infra.config import CheckSpec, DataSpec, InferSpec, JobSpec, StackConfig, TrainSpec
from infra.ray import places

_SPECIAL = {"\\\\": "\\u005c", "$": "\\u0024", "`": "\\u0060"}


def entrypoint(config: StackConfig, workload: JobSpec) -> str:
    arguments = {
        "settings": shell_json(workload.settings().model_dump(mode="json")),
        "output": places.output(config, workload),
    }
    if not isinstance(workload, DataSpec):
        contract = config.slice(workload.slice).contract()
        arguments["slice"] = shell_json(asdict(contract))
    if isinstance(workload, TrainSpec):
        arguments["corpus"] = places.corpus(config, workload)
        if workload.base is not None:
            arguments["base"] = places.MODEL_PATH
    if isinstance(workload, DataSpec) and workload.tokenizer is not None:
        arguments["tokenizer"] = workload.tokenizer.path
    if isinstance(workload, InferSpec):
        arguments["model"] = places.MODEL_PATH
    words = [word for name, value in arguments.items() for word in (f"--{name}", value)]
    if isinstance(workload, TrainSpec):
        words += _choice(config, workload)
    return shlex.join(["python", "-m", *modules(workload), *words])


def modules(workload: JobSpec) -> list[str]:
    """The job's own, after that which looks at its slice before, if that is asked for."""
    checks = not isinstance(workload, DataSpec | CheckSpec) and workload.slice_check
    before = ["workloads.check.before"] if checks else []
    return [*before, f"workloads.{workload.kind}.main"]


def _choice(config: StackConfig, workload: TrainSpec) -> list[str]:
    """What the run may take if its slices do not come, and when it takes it."""
    if workload.min_slices is not None:
        return ["--min-slices", str(workload.min_slices)]
    shapes = config.slice(workload.slice).fallback
    words = [w for shape in shapes for w in ("--fallback", shell_json(asdict(shape.contract())))]
    wait_s = int(workload.fallback_after.total_seconds())
    return [*words, "--slice-timeout-s", str(wait_s)] if words else []


def shell_json(value: Any) -> str:
    """JSON that two shells and list2cmdline leave as it is; `value` is a mapping with a key."""
    text = json.dumps(value)
    for character, escape in _SPECIAL.items():
        text = text.replace(character, escape)
    return text
