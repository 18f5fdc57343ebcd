"""Three programs, one answer: our engine, vLLM and transformers, greedy and in float32."""

import asyncio

import jax.numpy as jnp
import pytest
import torch
from transformers import AutoModelForCausalLM
from vllm import LLM, SamplingParams

from workloads.contract import SliceContract
from workloads.model import hf
from workloads.serve.batch import Batch
from workloads.serve.completion import Sampling
from workloads.serve.engine import Engine
from workloads.serve.vllm import VllmArgs, llm_config
from workloads.settings import ServeSettings

LENGTH, NEW = 96, 24
PROMPTS = ([5, 9, 200], [17] * 40, [*range(20, 53)], [250])
SLICE = SliceContract(
    name="chat",
    slices=1,
    generation="v6e",
    machine_type="ct6e-standard-4t",
    topology="2x2",
    hosts=1,
    chips_per_host=4,
    devices_per_chip=1,
    hbm_gib_per_chip=32,
    bf16_tflops_per_chip=918,
    accelerator_type="TPU-V6E",
    pod_type="v6e-4",
)


@pytest.fixture(scope="module")
def by_transformers(exported):
    model = AutoModelForCausalLM.from_pretrained(exported, dtype=torch.float32)
    how = {"do_sample": False, "max_new_tokens": NEW, "pad_token_id": 0}
    return [
        model.generate(torch.tensor([prompt]), **how)[0, len(prompt) :].tolist()
        for prompt in PROMPTS
    ]


def test_our_engine_answers_as_transformers_do(exported, mesh, by_transformers):
    model = hf.load(exported, mesh, dtype=jnp.float32)
    engine = Engine(Batch(model, rows=4, length=LENGTH), end_tokens=(0,), queue_limit=8)
    engine.start()

    async def completed(prompt):
        how = Sampling(max_tokens=NEW, temperature=0.0)
        return [token.id async for token in engine.generate(prompt, how)]

    async def crowd():
        return await asyncio.gather(*map(completed, PROMPTS))

    try:
        assert asyncio.run(crowd()) == by_transformers
    finally:
        engine.stop()


def test_vllm_answers_as_transformers_do(exported, by_transformers):
    """With the arguments that a local stack's replica gives its engine."""
    settings = ServeSettings(
        engine="vllm", max_sequence_length=LENGTH, max_batch=4, dtype="float32"
    )
    args = VllmArgs(
        slice=SLICE, settings=settings, model=str(exported), model_name="chat", device="cpu"
    )
    engine = LLM(model=args.model, **llm_config(args)["engine_kwargs"])
    prompts = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
    done = engine.generate(prompts, SamplingParams(temperature=0, max_tokens=NEW), use_tqdm=False)
    assert [[*answer.outputs[0].token_ids] for answer in done] == by_transformers
