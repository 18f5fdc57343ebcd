"""The stack file that `raytpu new` writes: text, for the sake of its comments."""

from infra.cli.offers import Answers, Purpose
from workloads.contract import device_noun

NAMES: dict[Purpose, str] = {"serve": "chat", "train": "train", "cluster": "work"}
"""Of the slice."""
MODEL = "Qwen/Qwen3-4B"
TENSOR = 4
"""Devices that share one copy of the model that is trained: its heads divide by it."""
SEQUENCES_PER_DEVICE = 4


def stack_text(answers: Answers) -> str:
    parts = (_header(answers), _images(answers), _slice(answers), _workloads(answers))
    return "".join(parts)


def _header(answers: Answers) -> str:
    channel = "rapid" if answers.environment == "dev" else "regular"
    budget = ""
    if answers.budget is not None:
        budget = (
            f"    max_usd_per_month: {answers.budget}"
            f"   # `raytpu cost {answers.stack}` fails above it\n"
        )
    return f"""\
# Stack {answers.stack}, written by `raytpu new`. What it makes: raytpu render {answers.stack}
config:
  raytpu:environment: {answers.environment}
  raytpu:cluster:
    mode: gke
    project: {answers.project}
    location: {answers.location}
    zones: [{", ".join(answers.zones)}]   # of all nodes
    release_channel: {channel}
  raytpu:team:
    name: {answers.team}   # also the namespace
    cost_center: {answers.cost_center}
{budget}    members: []   # Google accounts or groups that may work in the namespace
"""


def _images(answers: Answers) -> str:
    repository = f"{answers.location}-docker.pkg.dev/{answers.project}/raytpu-{answers.stack}"
    vllm = f"    vllm: {repository}/vllm:0.1.0\n" if answers.purpose == "serve" else ""
    return f"""\
  # The stack makes their repository; docs/gke.md says how to build and push. A tag may be moved:
  # prod wants IMAGE@sha256:DIGEST, as `docker push` prints it.
  raytpu:images:
    ray: {repository}/ray:0.1.0
{vllm}"""


def _slice(answers: Answers) -> str:
    rungs = "".join(f"        - {_rung(kind, answers)}\n" for kind in answers.capacity)
    provision = ""
    if len(answers.zones) > 1:
        provision = "      provision: compute_class   # a node pool of a slice is in one zone\n"
    return f"""\
  # Hosts, node pools, labels and Ray's names follow from these: raytpu check {answers.stack}
  raytpu:slices:
    - name: {NAMES[answers.purpose]}
      machine_type: {answers.machine_type}
      topology: {answers.topology}
{provision}      capacity:   # most preferred first
{rungs}"""


def _rung(kind: str, answers: Answers) -> str:
    match kind:
        case "reservation":
            return f"reservation: {{name: {answers.reservation}}}"
        case "flex_start":
            return "flex_start: {max_run_duration: 7d}   # waits, and ends after so long"
        case "spot":
            return "spot: {}   # may be taken back"
        case _:
            return f"{kind}: {{}}"


def _workloads(answers: Answers) -> str:
    match answers.purpose:
        case "serve":
            return _SERVE
        case "train":
            return _train(answers)
        case "cluster":
            return _CLUSTER


_SERVE = f"""\
  raytpu:workloads:
    - name: chat
      kind: serve
      slice: chat
      engine: vllm
      model: {{hub: {MODEL}}}
      max_sequence_length: 4096
      max_batch: 64
"""
_CLUSTER = """\
  raytpu:workloads:
    - name: work
      kind: cluster   # to work on by hand
      slice: work
      idle_timeout: 30m   # after so long without work its hosts are given back
"""


def _train(answers: Answers) -> str:
    tensor = min(TENSOR, answers.devices)
    noun = device_noun(answers.devices_per_chip)
    return f"""\
  raytpu:workloads:
    - name: corpus
      kind: data   # without sources: a small corpus that is at hand; yours are gs:// addresses
      vocab_size: 32768
      sequence_length: 2048
    - name: pretrain
      kind: train
      slice: train
      data: corpus
      mesh: {{data: {answers.devices // tensor}, tensor: {tensor}}}   # of all {noun}s
      steps: 10000
      global_batch: {answers.devices * SEQUENCES_PER_DEVICE}   # a multiple of the {noun}s
      max_failures: 20   # lost hosts after which it is given up
      deadline: 3d   # for all of it; then it is stopped
      model:
        layers: 12
        hidden_size: 768
        intermediate_size: 2048
        attention_heads: 12
        key_value_heads: 4
        head_dim: 64
"""
