"""The Ray Serve application: an HTTP ingress before engines that hold a slice each.

Named in Serve's declarative config as `workloads.serve.app:build`. Everything that can be wrong
with the arguments or the model's files is found here, before a chip is taken.
"""

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import Any, Self, cast

from fastapi import FastAPI
from pydantic import field_validator, model_validator
from ray import serve
from ray.serve.exceptions import BackPressureError
from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator

from workloads import versions
from workloads.model.config import ModelConfig, ModelError, read_config
from workloads.serve.api import Served, make_api
from workloads.serve.args import ServeArgs, read
from workloads.serve.completion import Delta, Sampling
from workloads.serve.errors import Overloaded
from workloads.serve.text import Text, write

WAITING_PER_ROW = 8  # requests that may wait for each row of a batch
HEALTH_PERIOD_S = 3.0  # three failures in a row are one too many for Serve
DRAIN_TIMEOUT_S = 100.0  # for the requests under way; less than a pod is given to end
SPARE_CALLS = 32  # calls that take no row: health checks, and requests about to be refused


class AppArgs(ServeArgs):
    model: Path
    """Folder in Hugging Face's layout, seen by every node."""
    parent_topology: str | None = None
    """Of the slices of which `slice` is a part. By default it is a slice of its own."""

    @field_validator("model", mode="before")
    @classmethod
    def _on_a_file_system(cls, raw: Any) -> Any:
        if isinstance(raw, str) and "://" in raw:
            raise ValueError(f"{raw} is not a folder; mount the bucket and name the mounted path")
        return raw

    @model_validator(mode="after")
    def _fits_the_slice(self) -> Self:
        faults = self.faults_of_shape()
        if self.settings.max_batch % self.mesh.data:
            faults.append(
                f"max_batch {self.settings.max_batch} is not a multiple of mesh axis data"
                f" {self.mesh.data}"
            )
        if faults:
            raise ValueError("; ".join(faults))
        return self

    @property
    def across_hosts(self) -> bool:
        """Whether a replica runs in processes of its own on the hosts, and holds no chip itself."""
        return self.slice.multi_host or self.parent_topology is not None

    @property
    def queue_limit(self) -> int:
        return self.settings.max_batch * WAITING_PER_ROW

    @property
    def calls(self) -> int:
        """Calls one engine takes at once. More than it answers: it refuses the rest itself."""
        return self.settings.max_batch + self.queue_limit + SPARE_CALLS


class SliceEngine:
    """One copy of the model on the devices of one slice."""

    def __init__(self, args: AppArgs) -> None:
        self._closing = ExitStack()
        versions.check_host()
        # Here: only the replica may take the chips.
        from workloads.serve.engine import Engine

        where = (args.model, args.settings, args.mesh)
        self._hosts = None
        if args.across_hosts:
            from workloads.serve.hosts import Hosts
            from workloads.serve.reservation import reserve, reserve_part

            parent = args.parent_topology
            held = reserve_part(args.slice, parent) if parent else reserve(args.slice)
            self._closing.callback(held.shutdown)  # and with it the processes on the hosts
            rows = self._hosts = Hosts(held, args.slice, *where)
        else:
            from workloads.serve import batch

            rows = batch.load(*where)
        self._tokenizer = Text(args.model).tokenizer
        self._engine = Engine(
            rows,
            end_tokens=read_config(args.model).eos_token_ids,
            queue_limit=args.queue_limit,
            on_failure=leave,
        )
        self._engine.start()
        self._closing.callback(self._engine.stop)

    async def complete(
        self, prompt: Sequence[int], sampling: Sampling, stops: Sequence[str]
    ) -> AsyncGenerator[Delta, None]:
        tokens = self._engine.generate(prompt, sampling)
        async with aclosing(write(tokens, self._tokenizer, stops)) as deltas:
            async for delta in deltas:
                yield delta

    async def check(self) -> None:
        self._engine.check()
        if self._hosts is not None:
            await self._hosts.check()

    async def check_health(self) -> None:
        """Asked by Serve, which replaces a replica that raises."""
        await self.check()

    def __del__(self) -> None:
        """Called by Serve once the requests under way have ended."""
        self._closing.close()


def leave() -> None:
    """Ends a replica whose engine failed, so that Serve sends no more requests to it.

    It would stay until several health checks in a row had failed, and draw most requests: who fails
    at once is never busy. The slice is given back with the process, by Ray.
    """
    os._exit(1)


class RemoteEngine:
    """The engines as a Completer, wherever they run."""

    def __init__(self, handle: DeploymentHandle) -> None:
        self._handle = handle

    async def complete(
        self, prompt: Sequence[int], sampling: Sampling, stops: Sequence[str]
    ) -> AsyncGenerator[Delta, None]:
        call = self._handle.options(stream=True).complete.remote(prompt, sampling, stops)
        stream = cast("DeploymentResponseGenerator[Delta]", call)  # as stream=True makes it
        try:
            async for delta in stream:
                yield delta
        except BackPressureError as error:
            raise Overloaded(str(error)) from error
        finally:
            stream.cancel()  # does nothing once it has ended

    async def check(self) -> None:
        await self._handle.check.remote()


class Ingress:
    """OpenAI's endpoints. Takes no chip."""

    def __init__(self, engine: DeploymentHandle, args: AppArgs) -> None:
        config = read_config(args.model)
        key_file = args.api_key_file
        served = Served(
            name=args.model_name,
            text=Text(args.model),
            vocab_size=config.vocab_size,
            length=args.settings.max_sequence_length,
            api_key=None if key_file is None else read_key(key_file),
        )
        self._api = make_api(served, RemoteEngine(engine))

    def __serve_build_asgi_app__(self) -> FastAPI:
        return self._api


def build(args: dict[str, Any]) -> serve.Application:
    """The application for `args`, which AppArgs describes.

    Raises ValueError with all faults in one line: Serve's status ends with it.
    """
    try:
        return application(read(AppArgs, args))
    except ModelError as error:
        raise ValueError("; ".join(str(error).splitlines())) from None


def application(args: AppArgs) -> serve.Application:
    """Raises ModelError for a model or key that cannot be served."""
    check_model(args, read_config(args.model), Text(args.model))
    if args.api_key_file is not None:
        read_key(args.api_key_file)
    return deploy(args, SliceEngine, Ingress)


def deploy(args: AppArgs, engine_class: type, ingress_class: type) -> serve.Application:
    """An engine on each slice, made of `args`, and an ingress made of a handle to them and `args`.

    The ingress is an ASGI application by `__serve_build_asgi_app__`.
    """
    tpu = args.slice
    engine = serve.deployment(
        num_replicas=args.replicas,
        max_ongoing_requests=args.calls,
        health_check_period_s=HEALTH_PERIOD_S,
        graceful_shutdown_timeout_s=DRAIN_TIMEOUT_S,
        ray_actor_options={
            **_held(args),
            "label_selector": {
                "ray.io/accelerator-type": tpu.accelerator_type,
                "ray.io/tpu-topology": args.parent_topology or tpu.topology,
            },
            "runtime_env": {"env_vars": versions.environment()},
        },
    )(engine_class)
    ingress = serve.deployment(
        max_ongoing_requests=args.calls * args.replicas,
        ray_actor_options={"num_cpus": 0.1},  # waits more than it works
    )(serve.ingress()(ingress_class))
    return ingress.bind(engine.bind(args), args)


def _held(args: AppArgs) -> dict[str, Any]:
    """What a replica itself takes: its chips, or its place on the first host of a slice of several.

    Chips of several hosts it reserves once it is there, as Serve cannot be told how many they have.
    """
    tpu = args.slice
    if not args.across_hosts:
        return {"resources": {"TPU": float(tpu.chips_per_host)}}
    whole = args.parent_topology is None
    head = {f"TPU-{tpu.pod_type}-head": 1.0}
    return {"num_cpus": 0.1, "resources": head if whole else {}}


def check_model(args: AppArgs, config: ModelConfig, text: Text) -> None:
    """Raises ModelError that lists every way in which the model and the settings disagree."""
    faults = []
    length = args.settings.max_sequence_length
    if length > config.max_position_embeddings:
        faults.append(
            f"max_sequence_length {length} is more than the model's own limit of"
            f" {config.max_position_embeddings}"
        )
    if text.vocab_size > config.vocab_size:
        faults.append(
            f"its tokenizer has {text.vocab_size} tokens, but the model only {config.vocab_size}"
        )
    if not config.eos_token_ids:
        faults.append("it names no eos_token_id, so no completion would end by itself")
    if faults:
        raise ModelError(str(args.model), faults)


def read_key(path: Path) -> str:
    try:
        key = path.read_text().strip()
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
        raise ModelError(f"api_key_file {path}", [fault]) from None
    if not key:
        raise ModelError(f"api_key_file {path}", ["is empty; write the key into it"])
    return key
