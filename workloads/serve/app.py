"""The Ray Serve application: an HTTP ingress before engines that hold a slice each.

Named in Serve's declarative config as `workloads.serve.app:build`. Everything that can be wrong
with the arguments or the model's files is found here, before a chip is taken.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
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
from workloads.settings import MeshSettings, ServeSettings

WAITING_PER_ROW = 8  # requests that may wait for each row of a batch
SPARE_CALLS = 32  # calls that take no row: health checks, and requests about to be refused


class AppArgs(ServeArgs):
    model: Path
    """Folder in Hugging Face's layout, seen by every node."""

    @field_validator("model", mode="before")
    @classmethod
    def _on_a_file_system(cls, raw: Any) -> Any:
        if isinstance(raw, str) and "://" in raw:
            raise ValueError(f"{raw} is not a folder; mount the bucket and name the mounted path")
        return raw

    @model_validator(mode="after")
    def _fits_the_slice(self) -> Self:
        faults = self.faults_of_shape()
        if self.slice.multi_host:
            faults.append(
                f"slice {self.slice.name} has {self.slice.hosts} hosts, but the jax engine serves "
                "from one; declare a topology of one host"
            )
        if self.settings.max_batch % self.mesh.data:
            faults.append(
                f"max_batch {self.settings.max_batch} is not a multiple of mesh axis data"
                f" {self.mesh.data}"
            )
        if faults:
            raise ValueError("; ".join(faults))
        return self

    @property
    def queue_limit(self) -> int:
        return self.settings.max_batch * WAITING_PER_ROW

    @property
    def calls(self) -> int:
        """Calls one engine takes at once. More than it answers: it refuses the rest itself."""
        return self.settings.max_batch + self.queue_limit + SPARE_CALLS


class SliceEngine:
    """One copy of the model on the devices of one slice."""

    def __init__(
        self, folder: Path, settings: ServeSettings, axes: MeshSettings, queue_limit: int
    ) -> None:
        versions.check_host()
        # Here: only the replica may take the chips.
        import jax.numpy as jnp

        from workloads.model import hf, sharding
        from workloads.serve.batch import Batch
        from workloads.serve.engine import Engine

        mesh = sharding.make_mesh(axes)
        model = hf.load(folder, mesh, dtype=jnp.dtype(settings.dtype))
        batch = Batch(model, rows=settings.max_batch, length=settings.max_sequence_length)
        self._tokenizer = Text(folder).tokenizer
        self._engine = Engine(batch, end_tokens=model.config.eos_token_ids, queue_limit=queue_limit)
        self._engine.start()

    async def complete(
        self, prompt: Sequence[int], sampling: Sampling, stops: Sequence[str]
    ) -> AsyncGenerator[Delta, None]:
        tokens = self._engine.generate(prompt, sampling)
        async with aclosing(write(tokens, self._tokenizer, stops)) as deltas:
            async for delta in deltas:
                yield delta

    async def check(self) -> None:
        self._engine.check()

    def check_health(self) -> None:
        """Asked by Serve, which replaces a replica that raises."""
        self._engine.check()


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
            api_key=None if key_file is None else _read_key(key_file),
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
        _read_key(args.api_key_file)
    tpu = args.slice
    engine = serve.deployment(
        num_replicas=args.replicas,
        max_ongoing_requests=args.calls,
        ray_actor_options={
            "resources": {"TPU": tpu.chips_per_host},
            "label_selector": {
                "ray.io/accelerator-type": tpu.accelerator_type,
                "ray.io/tpu-topology": tpu.topology,
            },
            "runtime_env": {"env_vars": versions.environment()},
        },
    )(SliceEngine)
    ingress = serve.deployment(
        max_ongoing_requests=args.calls * args.replicas,
        ray_actor_options={"num_cpus": 0.1},  # waits more than it works
    )(serve.ingress()(Ingress))
    return ingress.bind(engine.bind(args.model, args.settings, args.mesh, args.queue_limit), args)


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


def _read_key(path: Path) -> str:
    try:
        key = path.read_text().strip()
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
        raise ModelError(f"api_key_file {path}", [fault]) from None
    if not key:
        raise ModelError(f"api_key_file {path}", ["is empty; write the key into it"])
    return key
