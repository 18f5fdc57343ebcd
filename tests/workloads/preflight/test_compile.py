"""What real compilations for a v5e 2x2 say, against counts by hand. No TPU is there."""

import pytest

from tests.workloads.preflight.compiled import (
    BATCH,
    EMBEDDING,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    LAYER,
    NORMS,
    PARAMETERS,
    TOKENS,
    WIDE,
    compiler,
    serve,
    train,
)

pytestmark = pytest.mark.timeout(900)
FLOAT32, BFLOAT16, INT32 = 4, 2, 4


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    with compiler(tmp_path_factory.mktemp("preflight")) as asked:
        yield asked.ask


@pytest.fixture(scope="module")
def data_parallel(ask):
    return ask(train(dtype="float32")).measured


def sent(measured):
    return {one.kind: one.payload_bytes for one in measured.collectives}


def test_a_step_costs_six_operations_for_each_weight_and_token_and_attention(data_parallel):
    tokens = BATCH * TOKENS / 4
    # Two products, forward and twice backward, and the scores anew: 2 operations each.
    attention = 2 * (2 * 3 + 1) * TOKENS * HEADS * HEAD_DIM
    assert data_parallel.flops == tokens * (6 * (LAYER + EMBEDDING) + attention)


def test_adam_keeps_two_numbers_beside_each_parameter(data_parallel):
    state = 3 * FLOAT32 * PARAMETERS
    tokens = BATCH / 4 * (TOKENS + 1) * INT32
    counters = 2 * INT32
    assert data_parallel.argument_bytes == pytest.approx(state + tokens + counters, abs=16)
    assert data_parallel.argument_bytes < data_parallel.hbm_bytes < 16 * 2**20
    assert data_parallel.fits


def test_adapters_keep_the_model_once_and_three_numbers_for_each_of_theirs(ask, data_parallel):
    measured = ask(train(dtype="bfloat16", lora={"rank": 4, "alpha": 8})).measured
    sides = 4 * (HIDDEN + HEADS * HEAD_DIM) + 3 * (HIDDEN + WIDE)
    state = BFLOAT16 * PARAMETERS + 3 * FLOAT32 * 4 * sides
    tokens = BATCH / 4 * (TOKENS + 1) * INT32
    assert measured.argument_bytes == pytest.approx(state + tokens + 2 * INT32, abs=16)
    # No gradient of the matrices that stay: of their three products each lacks one.
    assert 0.6 < measured.flops / data_parallel.flops < 0.8
    assert sent(measured)["all-reduce"] < 0.2 * sent(data_parallel)["all-reduce"]


def test_a_data_parallel_step_sends_its_gradients_once(data_parallel):
    """Also that of the tied embedding, to which tokens and logits both add."""
    gradients = FLOAT32 * PARAMETERS
    assert sent(data_parallel) == {"all-reduce": pytest.approx(gradients, rel=0.01)}
    assert {one.group for one in data_parallel.collectives} == {4}


def test_a_batch_in_parts_takes_as_many_operations(ask, data_parallel):
    """XLA itself counts one of the parts."""
    parts = ask(train(dtype="float32", gradient_accumulation_steps=2)).measured
    assert parts.flops == data_parallel.flops
    assert parts.unknown_loops == 0


def test_slices_exchange_what_each_chip_is_left_with(ask):
    """Within a slice gradients are reduced and scattered; a quarter each goes over the network."""
    measured = ask(train(slices=2, dtype="float32")).measured
    between = sent(measured)["dcn"]
    assert between == pytest.approx(FLOAT32 * (PARAMETERS + EMBEDDING) / 4, rel=0.02)
    assert {one.group for one in measured.collectives if one.kind == "dcn"} == {2}
    assert {one.group for one in measured.collectives if one.kind != "dcn"} == {4}


@pytest.mark.parametrize("kind", ["prefill", "decode"])
def test_a_server_holds_its_part_of_weights_and_cache(ask, kind):
    measured = ask(serve(kind)).measured
    weights = BFLOAT16 * ((LAYER + EMBEDDING) / 4 + NORMS)
    cache = BFLOAT16 * 2 * BATCH * TOKENS * HEADS * HEAD_DIM / 4
    prompt = {"prefill": INT32 * (1 + TOKENS + 1), "decode": INT32 * 5 * BATCH}[kind]
    assert measured.argument_bytes == weights + cache + prompt
    tokens = {"prefill": TOKENS, "decode": BATCH}[kind]
    attention = tokens * 4 * TOKENS * HEADS * HEAD_DIM
    logits = 2 * EMBEDDING * {"prefill": 1, "decode": BATCH}[kind]
    assert measured.flops == (2 * LAYER * tokens + attention + logits) / 4


def test_scratch_that_does_not_fit_is_told_with_the_compilers_own_numbers(ask):
    """Attention scores of 16 sequences of 4096 tokens and 16 heads: 8 GiB in bfloat16, twice."""
    large = train(
        sizes={"attention_heads": 16, "key_value_heads": 16}, tokens=4096, global_batch=64
    )
    measured = ask(large).measured
    assert not measured.fits
    assert measured.limit_bytes == 15.75 * 2**30
    assert measured.hbm_bytes > 16 * 2**30
    assert measured.argument_bytes < 2**25


def test_arguments_that_do_not_fit_are_refused_without_a_compilation(ask):
    large = train(sizes={"hidden_size": 8192, "intermediate_size": 65536})
    measured = ask(large).measured
    matrices = 4 * 8192 * HEADS * HEAD_DIM + 3 * 8192 * 65536 + 512 * 8192
    assert measured.argument_bytes == pytest.approx(12 * matrices, rel=0.001)
    assert (measured.hbm_bytes, measured.compile_s, measured.fits) == (None, None, False)


def test_a_mesh_that_does_not_divide_the_model_is_refused_in_a_line(ask):
    answer = ask(train(sizes={"key_value_heads": 2}, mesh={"tensor": 4}))
    assert answer.refused == (
        "the model cannot be cut so: key_value_heads 2 is not a multiple of mesh axis tensor 4; "
        "use another mesh or model"
    )


def on_ironwood(**settings):
    """A host of four chips, which are eight devices."""
    step = train(**settings)
    ironwood = {"generation": "tpu7x", "topology": "2x2x1", "host_topology": "2x2x1"}
    host = {**ironwood, "devices": 8, "hbm_gib_per_device": 96}
    return step.model_copy(update={"chips": step.chips.model_copy(update=host)})


def test_a_step_for_tpu7x_is_cut_over_two_devices_a_chip(ask):
    """On eight devices each computes half of what it does on four."""
    eight, four = (
        ask(step).measured for step in (on_ironwood(mesh={"data": 8}), train(mesh={"data": 4}))
    )
    assert eight.flops == four.flops / 2
    assert [one.group for one in eight.collectives if one.kind == "all-reduce"] == [8]


def test_a_device_of_tpu7x_has_half_of_its_chips_memory(ask):
    """The compiler keeps some of the 96 GiB for itself, as it does of a v6e's 32."""
    sizes = {"attention_heads": 16, "key_value_heads": 16}
    large = on_ironwood(mesh={"data": 8}, sizes=sizes, tokens=4096, global_batch=256)
    measured = ask(large).measured
    assert not measured.fits
    assert measured.limit_bytes == 94.75 * 2**30
