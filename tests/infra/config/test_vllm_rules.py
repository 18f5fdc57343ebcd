"""A model that vLLM cannot hold on its slice is refused before anything is paid for."""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from infra.config import model_files
from infra.config.model_facts import KNOWN, UncountedError, known, of_config
from tests.infra.config.stack import changed, faults, on_gke, only, read, remarks

V5E = ("ct5lp-hightpu-8t", "2x4")  # 128 GiB
V6E = ("ct6e-standard-8t", "2x4")  # 256 GiB

# As Hugging Face's config.json of Llama-3.1-70B-Instruct has them.
LLAMA_70B = {
    "model_type": "llama",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
}


def serving(machine, topology, model, **changes):
    slice_ = {"name": "chat", "machine_type": machine, "topology": topology, "boot_disk_gib": 500}
    entry = {"name": "chat", "kind": "serve", "slice": "chat", "engine": "vllm", "model": model}
    return on_gke(slices__1=slice_, workloads__2=entry | changes)


def of_model(lines):
    return [line for line in lines if line.startswith("raytpu:workloads[2]")]


@pytest.fixture
def folder(tmp_path):
    def written(**changes):
        (tmp_path / "config.json").write_text(json.dumps(LLAMA_70B | changes))
        return {"path": str(tmp_path)}

    return written


def on_a_laptop(model, **changes):
    """A stack of a local folder's model on a simulated v5e 2x4."""
    slice_ = {"name": "chat", "machine_type": V5E[0], "topology": V5E[1]}
    entry = {"name": "chat", "kind": "serve", "slice": "chat", "engine": "vllm", "model": model}
    return changed(slices__1=slice_, workloads__2=entry | changes)


@pytest.mark.parametrize(
    ("hub", "billions"),
    # As the cards on the hub say.
    [
        ("meta-llama/Meta-Llama-3-8B-Instruct", 8.03),
        ("meta-llama/Llama-3.1-70B-Instruct", 70.6),
        ("mistralai/Mistral-7B-v0.1", 7.24),
        ("Qwen/Qwen3-4B", 4.02),
        ("Qwen/Qwen3-8B", 8.19),
        ("Qwen/Qwen3-32B", 32.8),
    ],
)
def test_a_well_known_model_has_as_many_parameters_as_are_published(hub, billions):
    facts = known(hub)
    assert facts is not None
    assert facts.parameters / 1e9 == pytest.approx(billions, rel=0.002)


def test_seventy_billion_parameters_fit_eight_v5e_chips_in_no_way_but_of_fewer_bits():
    """2 x 70e9 bytes are 130 GiB, 70e9 are 65: half of the 128, and 50 are left."""
    refused = faults(serving(*V5E, {"hub": "acme/own-70B"}))
    assert "130 GiB of weights do not fit the 128 GiB" in only(refused, "workloads[2].model")
    int8 = serving(*V5E, {"hub": "acme/own-70B-int8", "weights_gib": 66})
    assert faults(int8) == []
    [line] = of_model(remarks(int8))
    assert "66.0 GiB of weights leave 49.2 of 128 GiB for the cache" in line
    four = serving(*V6E, {"hub": "acme/own-4B"})
    assert faults(four) == []
    assert of_model(remarks(four)) == []


def test_a_model_of_140_gib_does_not_fit_a_boot_disk_of_100():
    stack = serving(*V6E, {"hub": "acme/own", "weights_gib": 140})
    stack["slices"][1]["boot_disk_gib"] = 100
    line = only(faults(stack), "workloads[2].model.hub")
    assert "140 GiB of weights do not fit the 29 GiB that a host's disk leaves" in line
    assert "boot_disk_gib" in line


@pytest.mark.parametrize(
    ("topology", "tensor", "told"),
    [
        ("4x8", 1, "tensor 1 = 1 does not cover the 32 chips"),
        ("4x4", 32, "tensor 32 = 32 does not cover the 16 chips"),
        ("4x8", 32, None),
    ],
)
def test_a_slice_of_several_hosts_is_covered_by_the_engine(topology, tensor, told):
    model = {"hub": "meta-llama/Llama-3.1-70B-Instruct"}
    lines = faults(serving("ct6e-standard-4t", topology, model, mesh={"tensor": tensor}))
    found = [line for line in lines if line.startswith("raytpu:workloads[2].mesh:")]
    assert [told in line for line in found] == ([True] if told else [])
    assert told or lines == []


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ({}, None),
        ({"num_key_value_heads": 4}, None),  # fewer than 8 chips: each of them is copied twice
        ({"num_key_value_heads": 16}, None),
        ({"vocab_size": 32003}, None),  # vLLM pads it
        ({"num_attention_heads": 60, "num_key_value_heads": 4}, "attention heads 60"),
        ({"num_key_value_heads": 12}, "key-value heads 12 (nor is it a multiple of them)"),
        ({"intermediate_size": 11004}, "feed-forward size 11004"),
    ],
)
def test_heads_and_feed_forward_divide_over_the_chips_as_vllm_wants(folder, sizes, told):
    small = {"num_hidden_layers": 2, "head_dim": 128}
    lines = faults(on_a_laptop(folder(**small, **sizes)))
    if told is None:
        assert lines == []
    else:
        assert told in only(lines, "workloads[2].mesh.tensor")


def test_the_way_out_of_heads_that_do_not_divide_does_divide(folder):
    """60 heads over 4: 1, 2, 4, 12 and 20 chips take whole ones, and 28672 is no multiple of 3."""
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 60, "num_key_value_heads": 4}
    line = only(faults(on_a_laptop(folder(**sizes))), "workloads[2].mesh.tensor")
    assert line.endswith("use a slice of 1, 2, 4 chips, or another model")


def test_the_chips_of_tpu7x_share_out_a_model_as_two_devices_each(folder):
    """60 heads over 8 devices: those of one chip or two, 2 and 4, take whole ones."""
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 60, "num_key_value_heads": 4}
    host = {"name": "chat", "machine_type": "tpu7x-standard-4t", "topology": "2x2x1"}
    stack = on_a_laptop(folder(**sizes))
    stack["slices"][1] = host
    line = only(faults(stack), "workloads[2].mesh.tensor")
    assert "8 does not divide the model's attention heads 60" in line
    assert line.endswith("use a slice of 1, 2 chips, or another model")


def test_the_sizes_are_those_of_the_model_s_own_file(folder):
    """131.4 GiB by its config.json, whatever its folder is called."""
    line = only(faults(on_a_laptop(folder())), "workloads[2].model")
    assert "131 GiB of weights do not fit the 128 GiB" in line


@pytest.mark.parametrize(
    ("quantization", "weights"),
    [({"quant_method": "gptq", "bits": 4}, "32.9"), ({"quant_method": "fp8"}, "65.7")],
)
def test_a_model_of_fewer_bits_is_as_small_as_its_file_says(folder, quantization, weights):
    stack = on_a_laptop(folder(quantization_config=quantization))
    assert faults(stack) == []
    assert read(stack).fit["chat"].startswith(f"{weights} GiB of weights, ")


def test_cache_and_head_room_are_told_in_gib():
    """2 x 80 layers x 8 heads x 128 x 2 bytes are 320 KiB a token: 2.5 GiB for 8192 of them."""
    model = {"hub": "meta-llama/Llama-3.1-70B-Instruct"}
    stack = serving(*V6E, model, max_sequence_length=8192, max_batch=64)
    assert faults(stack) == []
    assert read(stack).fit["chat"] == (
        "131.4 GiB of weights, 160.0 GiB of cache for 64 x 8192 tokens; vLLM may use 230.4 of 256 "
        "GiB"
    )
    tight, waiting = of_model(remarks(stack))
    assert "131.4 GiB of weights leave 99.0 of 256 GiB for the cache" in tight
    assert "64 requests of full length are more than the 39 whose cache fits the 99.0 GiB" in (
        waiting
    )


def test_key_value_heads_that_are_copied_take_cache_as_often(folder):
    """8 heads on 32 chips are kept four times, 10 GiB in place of 2.5; a head of 80 as one of 128,
    and one of 64 as it is."""
    chips = {"machine_type": "ct6e-standard-4t", "topology": "4x8"}
    sizes = {"num_hidden_layers": 80, "num_key_value_heads": 8}
    for head_dim, cache in ((128, "10.0"), (80, "10.0"), (64, "5.0")):
        stack = on_a_laptop(
            folder(**sizes, head_dim=head_dim), max_sequence_length=8192, max_batch=1
        )
        stack["slices"][1] |= chips
        assert f"{cache} GiB of cache for 1 x 8192 tokens" in read(stack).fit["chat"]


def test_one_request_must_fit_beside_the_weights():
    """15 GiB of Llama-3-8B on one v6e chip of 32 leave 13.8; 131072 tokens of 128 KiB are 16."""
    model = {"hub": "meta-llama/Meta-Llama-3-8B"}
    small = serving("ct6e-standard-1t", "1x1", model, max_sequence_length=131072, max_batch=1)
    line = only(of_model(faults(small)), "workloads[2].model")
    assert "15.0 GiB of weights and 16.0 of cache for one request" in line
    assert "28.8 of 32 GiB" in line
    small["workloads"][2]["max_sequence_length"] = 65536
    assert faults(small) == []


def test_a_length_beyond_what_the_model_was_made_for_is_refused(folder):
    stack = on_a_laptop(folder(num_hidden_layers=2), max_sequence_length=131073)
    line = only(faults(stack), "workloads[2].max_sequence_length")
    assert "131073 is more than the 131072 tokens that the model was made for" in line


def test_a_model_that_the_stack_trains_is_judged_by_its_settings():
    """Of 4 key-value heads: over 8 chips vLLM copies them, where engine jax refuses."""
    stack = on_gke(workloads__2__model="pretrain")
    assert faults(stack) == []
    assert read(stack).fit["chat"].startswith("0.0 GiB of weights, ")


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ({"hub": "acme/own-model"}, "its config.json is not here"),
        ({"hub": "acme/own-7B"}, "13.0 GiB of weights by its name; cache and heads are not che"),
        ({"path": "gs://acme-models/own"}, "its config.json is not here"),
    ],
)
def test_what_is_not_known_is_called_not_checked(model, told):
    stack = serving(*V6E, model)
    assert faults(stack) == []
    assert "not checked" in read(stack).fit["chat"]
    assert told in read(stack).fit["chat"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"model_type": "mixtral"}, "its model_type is 'mixtral'"),
        ({"num_hidden_layers": "80"}, "its num_hidden_layers is '80'"),
        ({"num_attention_heads": 0}, "its num_attention_heads is 0"),
        ({"quantization_config": {"quant_method": "awq"}}, "how many bits a weight has"),
    ],
)
def test_a_model_that_cannot_be_counted_is_not_guessed(content, told):
    with pytest.raises(UncountedError, match=re.escape(told)):
        of_config(LLAMA_70B | content)


def test_a_config_that_is_no_json_is_said_and_is_no_fault_of_the_stack(tmp_path):
    (tmp_path / "config.json").write_text("{")
    stack = on_a_laptop({"path": str(tmp_path)})
    assert faults(stack) == []
    assert "not checked: its config.json is not JSON" in read(stack).fit["chat"]


def test_no_value_of_a_secret_key_is_told():
    stack = serving(*V5E, {"hub": "meta-llama/Llama-3.1-70B"})
    lines = faults(stack, secret_keys=["raytpu:workloads"])
    assert lines
    assert not [line for line in lines if re.search("131|Llama", line)]


class _Store(BaseHTTPRequestHandler):
    """The hub, and a bucket in the form of Google's interface."""

    def do_GET(self):
        found = {
            "/acme/own/resolve/main/config.json": LLAMA_70B,
            "/download/storage/v1/b/acme-models/o/own%2Fconfig.json": LLAMA_70B,
        }.get(self.path.partition("?")[0])
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(json.dumps(found or {"error": {"message": "no such"}}).encode())

    def log_message(self, format, *args):  # noqa: A002 # the name of what it overrides
        pass


@pytest.fixture
def store(monkeypatch):
    with ThreadingHTTPServer(("127.0.0.1", 0), _Store) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("HF_ENDPOINT", url)
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        model_files.ask.cache_clear()
        yield
        server.shutdown()
    model_files.ask.cache_clear()


@pytest.mark.parametrize("model", [{"hub": "acme/own"}, {"path": "gs://acme-models/own"}])
@pytest.mark.usefixtures("store")
def test_the_hub_and_a_bucket_are_asked_where_a_user_waits(model):
    stack = serving(*V5E, model)
    assert faults(stack) == []
    line = only(of_model(faults(stack, online=True)), "workloads[2].model")
    assert "131 GiB of weights do not fit the 128 GiB" in line


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ({"hub": "acme/gone"}, "the hub answers 404"),
        ({"path": "gs://acme-models/gone"}, "its bucket answers 404"),
    ],
)
@pytest.mark.usefixtures("store")
def test_a_model_that_is_not_there_is_not_checked(model, told):
    stack = serving(*V5E, model)
    assert faults(stack, online=True) == []
    assert told in read(stack, online=True).fit["chat"]


def test_a_hub_that_gives_no_answer_is_no_fault(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    stack = serving(*V5E, {"hub": "acme/far-away"})
    assert faults(stack, online=True) == []
    assert "the hub gives no answer" in read(stack, online=True).fit["chat"]


def test_well_known_models_are_known_without_a_network(monkeypatch):
    monkeypatch.setattr(model_files.httpx, "get", None)
    for hub in KNOWN:
        stack = serving("ct6e-standard-4t", "4x4", {"hub": hub})
        assert "not checked" not in read(stack, online=True).fit["chat"]


@pytest.mark.parametrize(
    ("machine", "topology", "model", "fault"),
    [
        (*V5E, {"hub": "meta-llama/Llama-3-70B"}, "131 GiB of weights do not fit the 128 GiB"),
        ("ct6e-standard-4t", "2x2", {"hub": "Qwen/Qwen3-72B"}, "134 GiB .* the 128 GiB"),
        ("ct6e-standard-1t", "1x1", {"hub": "google/gemma-3-27b-it"}, "50 GiB .* the 32 GiB"),
        ("ct6e-standard-1t", "1x1", {"hub": "acme/own", "weights_gib": 33}, "33 GiB .* the 32"),
        (*V5E, {"hub": "meta-llama/Meta-Llama-3-8B-Instruct"}, None),
        ("ct6e-standard-8t", "2x4", {"hub": "Qwen/Qwen3-4B"}, None),
        (*V5E, {"hub": "acme/Llama-3-70B-AWQ"}, None),  # stored in fewer bits
        (*V5E, {"hub": "meta-llama/Llama-3-70B", "weights_gib": 40}, None),
        ("ct6e-standard-1t", "1x1", {"hub": "mistralai/Mixtral-8x7B-v0.1"}, None),  # two numbers
        ("ct6e-standard-1t", "1x1", {"hub": "acme/distilled-70b-to-8b"}, None),
        ("ct6e-standard-1t", "1x1", {"hub": "acme/own-model"}, None),
    ],
)
def test_a_model_of_the_hub_that_cannot_fit_its_chips_is_refused(machine, topology, model, fault):
    stack = on_gke(
        slices__1={"name": "chat", "machine_type": machine, "topology": topology},
        workloads__2__model=model,
    )
    lines = [line for line in faults(stack) if "chips of one copy" in line]
    if fault is None:
        assert lines == []
    else:
        assert re.search(fault, only(lines, "workloads[2].model"))


@pytest.mark.parametrize(
    ("boot_disk_gib", "room_gib"),
    # What is left of it: GKE keeps 41, 76, 100 and 100 GiB and a tenth, images take 20.
    [(100, 29), (200, 84), (300, 150), (500, 330)],
)
def test_a_model_must_fit_the_disk_of_each_host(boot_disk_gib, room_gib):
    """131 GiB on a boot disk of 200, for example: each host fetches the whole model."""
    slice_ = {
        "name": "chat",
        "machine_type": "ct6e-standard-4t",
        "topology": "4x4",
        "boot_disk_gib": boot_disk_gib,
    }
    stack = on_gke(slices__1=slice_, workloads__2__model={"hub": "meta-llama/Llama-3-70B"})
    lines = [line for line in faults(stack) if "disk" in line]
    if room_gib > 131:
        assert lines == []
    else:
        said = f"131 GiB of weights do not fit the {room_gib} GiB that a host's disk leaves"
        assert said in only(lines, "workloads[2].model.hub")
