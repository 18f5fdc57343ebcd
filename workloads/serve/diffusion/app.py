"""The Ray Serve application that draws: an HTTP ingress before engines that hold a slice each.

Named in Serve's declarative config as `workloads.serve.diffusion.app:build`. Everything that can be
wrong with the arguments or the model's files, but for its weights, is found before a chip is taken.
"""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.serve.exceptions import BackPressureError
from ray.serve.handle import DeploymentHandle

from workloads import versions
from workloads.log import say
from workloads.model.config import ModelError
from workloads.serve.app import AppArgs, deploy, leave, read_key
from workloads.serve.args import read
from workloads.serve.diffusion import png
from workloads.serve.diffusion.api import Served, make_api
from workloads.serve.diffusion.config import DiffusionConfig, read_config
from workloads.serve.diffusion.engine import Engine, Picture
from workloads.serve.errors import Overloaded
from workloads.serve.text import Text

NOISE = "the model is not trained: its weights are random, and its pictures noise"


class ImageArgs(AppArgs):
    def faults_of_shape(self) -> list[str]:
        tpu, faults = self.slice, super().faults_of_shape()
        if self.across_hosts:
            faults.append(
                f"slice {tpu.name} is {tpu.topology} on {tpu.hosts} hosts, or a part of a slice, "
                "and engine diffusion draws on whole slices of one host"
            )
        if self.mesh.tensor > 1:
            faults.append(
                f"mesh axis tensor is {self.mesh.tensor}, and engine diffusion cuts no model; use 1"
            )
        return faults


class SlicePainter:
    """One copy of the model on each device of one slice."""

    def __init__(self, args: ImageArgs) -> None:
        self._closing = ExitStack()
        versions.check_host()
        # Here: only the replica may take the chips.
        from workloads.serve.diffusion import pictures

        if not read_config(args.model).trained:
            say(NOISE)
        rows = pictures.load(args.model, args.settings, args.mesh)
        self._engine = Engine(rows, queue_limit=args.queue_limit, on_failure=leave)
        self._engine.start()
        self._closing.callback(self._engine.stop)

    async def draw(self, asked: Sequence[Picture]) -> list[bytes]:
        drawn = await self._engine.draw(asked)
        return await asyncio.to_thread(lambda: [png.encode(pixels) for pixels in drawn])

    async def check(self) -> None:
        self._engine.check()

    async def check_health(self) -> None:
        """Asked by Serve, which replaces a replica that raises."""
        self._engine.check()

    def __del__(self) -> None:
        """Called by Serve once the requests under way have ended."""
        self._closing.close()


class RemotePainter:
    """The engines as a Painter, wherever they run."""

    def __init__(self, handle: DeploymentHandle) -> None:
        self._handle = handle

    async def draw(self, asked: Sequence[Picture]) -> list[bytes]:
        call = self._handle.draw.remote(asked)
        try:
            return await call
        except BackPressureError as error:
            raise Overloaded(str(error)) from error
        finally:
            call.cancel()  # does nothing once it has ended

    async def check(self) -> None:
        await self._handle.check.remote()


class ImageIngress:
    """OpenAI's endpoint. Takes no chip."""

    def __init__(self, engine: DeploymentHandle, args: ImageArgs) -> None:
        key_file = args.api_key_file
        served = Served(
            name=args.model_name,
            config=read_config(args.model),
            text=Text(args.model),
            api_key=None if key_file is None else read_key(key_file),
        )
        self._api = make_api(served, RemotePainter(engine))

    def __serve_build_asgi_app__(self) -> FastAPI:
        return self._api


def build(args: dict[str, Any]) -> serve.Application:
    """The application for `args`, which ImageArgs describes.

    Raises ValueError with all faults in one line: Serve's status ends with it.
    """
    try:
        return application(read(ImageArgs, args))
    except ModelError as error:
        raise ValueError("; ".join(str(error).splitlines())) from None


def application(args: ImageArgs) -> serve.Application:
    """Raises ModelError for a model or key that cannot be served."""
    check_model(args, read_config(args.model), Text(args.model))
    if args.api_key_file is not None:
        read_key(args.api_key_file)
    return deploy(args, SlicePainter, ImageIngress)


def check_model(args: ImageArgs, config: DiffusionConfig, text: Text) -> None:
    """Raises ModelError that lists every way in which the model and the settings disagree."""
    faults = []
    if text.vocab_size > config.vocab_size:
        faults.append(
            f"its tokenizer has {text.vocab_size} tokens, but the model only {config.vocab_size}"
        )
    if (steps := args.settings.sampler_used.steps) > config.noise_steps:
        faults.append(f"sampler.steps {steps} is more than its {config.noise_steps} steps of noise")
    if faults:
        raise ModelError(str(args.model), faults)
