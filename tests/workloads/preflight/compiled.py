"""A tiny decoder's steps on a v5e 2x2, the topology that compiles fastest."""

from infra.preflight.compiler import Compiler
from workloads.model.config import ModelConfig
from workloads.preflight.program import Chips, ServeStep, TrainStep
from workloads.settings import ModelSettings, ServeSettings, TrainSettings

HIDDEN, WIDE, HEADS, HEAD_DIM, VOCABULARY, TOKENS = 128, 256, 4, 32, 512, 128
LAYER = 4 * HIDDEN * HEADS * HEAD_DIM + 3 * HIDDEN * WIDE
"""Elements of the matrices of the one layer."""
EMBEDDING = VOCABULARY * HIDDEN
NORMS = 3 * HIDDEN + 2 * HEAD_DIM
PARAMETERS = LAYER + EMBEDDING + NORMS
BATCH = 8


def model(**sizes):
    declared = {
        "layers": 1,
        "hidden_size": HIDDEN,
        "intermediate_size": WIDE,
        "attention_heads": HEADS,
        "key_value_heads": HEADS,
        "head_dim": HEAD_DIM,
        **sizes,
    }
    return ModelConfig.of(
        ModelSettings(**declared), vocab_size=VOCABULARY, max_position_embeddings=TOKENS
    )


def chips(*, slices=1):
    return Chips(
        generation="v5e",
        topology="2x2",
        host_topology="2x2",
        slices=slices,
        devices=4 * slices,
        hbm_gib_per_device=16,
    )


def train(*, slices=1, sizes=None, tokens=TOKENS, **settings):
    chosen = {"mesh": {"data": 4 * slices}, "steps": 100, "global_batch": BATCH, **settings}
    return TrainStep(
        chips=chips(slices=slices),
        model=model(**(sizes or {})),
        sequence_length=tokens,
        settings=TrainSettings.model_validate(chosen),
    )


def serve(kind):
    settings = ServeSettings(max_batch=BATCH, max_sequence_length=TOKENS)
    return ServeStep(kind=kind, chips=chips(), model=model(), settings=settings)


def compiler(folder):
    return Compiler(folder, timeout_s=500)
