"""What Serve costs: tokens a second by HTTP through it, against the engine alone.

    python tools/bench/serve.py

The same model, engine, prompts and number of clients: once in one process, by the engine's own
`generate`, and once as an application on a simulated slice. Chips would leave the host's cores to
Serve; here both share them, so that the loss is an upper bound. Prints a table and writes
.bench/serve.json.
"""

import asyncio
import json
import shutil
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from tools.bench.simulated import (
    CONTRACT,
    FOLDER,
    IN_ONE_PROCESS,
    MESH,
    make_model,
    run,
    sentences,
    simulated,
)
from workloads import entrypoint
from workloads.settings import MeshSettings, ModelSettings, ServeSettings

WORK = FOLDER / "serve"
MODEL = ModelSettings(
    layers=8,
    hidden_size=512,
    intermediate_size=1536,
    attention_heads=8,
    key_value_heads=4,
    head_dim=64,
)
"""Some 25 million parameters: small enough for a laptop, and yet a step takes most of the time."""
SERVE = ServeSettings(
    mesh=MeshSettings(**MESH), max_batch=16, max_sequence_length=128, dtype="float32"
)
CLIENTS = 2 * SERVE.max_batch
"""There is always a request that waits for a row."""
REQUESTS = 96
TOKENS = 48
ROUNDS = 4
APPLICATION = "bench"


def main() -> None:
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    console = Console()
    with console.status("the engine alone"):
        alone = float(run(IN_ONE_PROCESS, __file__, "alone").split()[-1])
    with console.status("through Serve"), simulated(WORK) as tpu:
        served = float(run(tpu.driver, __file__, "served").split()[-1])
    figures = {
        "engine alone, tokens/s": alone,
        "through Serve, tokens/s": served,
        "through Serve / engine alone": served / alone,
    }
    FOLDER.joinpath("serve.json").write_text(json.dumps(figures, indent=2))
    table = Table("what", "measured")
    for what, value in figures.items():
        table.add_row(what, f"{value:,.3f}" if value < 2 else f"{value:,.1f}")  # noqa: PLR2004
    console.print(table)


async def measured(ask: Callable[[str], Awaitable[int]], prompts: list[str]) -> float:
    """Tokens a second of many clients at once: the median of some rounds, the first left out."""
    rates: list[float] = []
    free = asyncio.Semaphore(CLIENTS)

    async def one(prompt: str) -> int:
        async with free:
            return await ask(prompt)

    for _ in range(ROUNDS):
        started = time.monotonic()
        tokens = sum(await asyncio.gather(*map(one, prompts)))
        rates.append(tokens / (time.monotonic() - started))
    return statistics.median(rates[1:])


def _alone() -> None:
    """Makes the model, and asks the engine in this process. Prints tokens a second."""
    from tokenizers import Tokenizer

    from workloads.model.config import read_config
    from workloads.serve import batch
    from workloads.serve.completion import Sampling
    from workloads.serve.engine import Engine

    folder = WORK / "model"
    prompts = sentences(make_model(MODEL, folder), REQUESTS)
    (WORK / "prompts.json").write_text(json.dumps(prompts))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    rows = batch.load(folder, SERVE, SERVE.mesh_on(CONTRACT.devices))
    engine = Engine(rows, end_tokens=read_config(folder).eos_token_ids, queue_limit=REQUESTS)
    engine.start()

    async def ask(prompt: str) -> int:
        how = Sampling(max_tokens=TOKENS, temperature=0)
        return len([one async for one in engine.generate(tokenizer.encode(prompt).ids, how)])

    sys.stdout.write(f"{asyncio.run(measured(ask, prompts)):.3f}\n")
    engine.stop()


def _served() -> None:
    """Deploys the application and asks it by HTTP. Prints tokens a second."""
    entrypoint.connect()  # first: what is said there to Ray is read when Ray is imported
    import httpx
    from ray import serve

    from infra.local import ports
    from workloads.serve.app import build

    prompts = json.loads((WORK / "prompts.json").read_text())
    port = ports.choose(None, "")
    serve.start(http_options={"host": ports.LOOPBACK, "port": port})
    args: dict[str, Any] = {
        "slice": json.loads(CONTRACT.to_json()),
        "settings": SERVE.model_dump(),
        "model": str(WORK / "model"),
        "model_name": APPLICATION,
    }
    serve.run(build(args), name=APPLICATION)
    url = f"http://{ports.LOOPBACK}:{port}/v1/completions"
    how = {"model": APPLICATION, "max_tokens": TOKENS, "temperature": 0}

    async def clients() -> float:
        limits = httpx.Limits(max_connections=CLIENTS)
        async with httpx.AsyncClient(timeout=120, limits=limits) as client:

            async def ask(prompt: str) -> int:
                answer = await client.post(url, json={**how, "prompt": prompt})
                answer.raise_for_status()
                return answer.json()["usage"]["completion_tokens"]

            return await measured(ask, prompts)

    sys.stdout.write(f"{asyncio.run(clients()):.3f}\n")


if __name__ == "__main__":
    {"alone": _alone, "served": _served}.get(" ".join(sys.argv[1:]), main)()
