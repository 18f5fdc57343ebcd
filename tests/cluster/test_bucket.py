"""What workloads do in Cloud Storage, against a server of its API, with nothing changed in them."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from tests.cluster.bucket_door import door
from tools.cluster.bucket import Buckets
from tools.cluster.kubelet.environment import MissingError
from workloads.data import storage

LIMIT_S = 240


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("storage")


@pytest.fixture(scope="module")
def buckets(programs, folder):  # noqa: ARG001 # built before it starts
    with Buckets(folder, "127.0.0.1", ["acme"]) as buckets:
        yield buckets


@pytest.fixture(scope="module")
def objects(buckets):
    with door(buckets.url) as opened:
        yield opened


@pytest.fixture
def run(buckets, objects):
    """What a program prints that knows of storage only what a pod is told.

    It may do what the role of GKE's workloads allows.
    """
    url, _ = objects
    told = {key: value.replace(buckets.url, url) for key, value in buckets.environment().items()}

    def printed(program, *arguments, **environment):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
            env={**os.environ, **ALWAYS, **told, **environment},
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return printed


ALWAYS = {
    **storage.ENVIRONMENT,
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
    "PYTHONWARNINGS": "ignore::FutureWarning",
}

WRITE_AND_READ = """
    import fsspec, json, pyarrow.fs, tensorstore
    from etils import epath

    fs, path = fsspec.url_to_fs("gs://acme/shared/by-gcsfs")
    fs.pipe_file(path, b"gcsfs")
    arrow, path = pyarrow.fs.FileSystem.from_uri("gs://acme/shared/by-arrow")
    with arrow.open_output_stream(path) as file:
        file.write(b"arrow")
    store = tensorstore.KvStore.open("gs://acme/shared/").result()
    store.write("by-tensorstore", b"tensorstore").result()
    epath.Path("gs://acme/shared/by-etils").write_bytes(b"etils")

    names = ("gcsfs", "arrow", "tensorstore", "etils")
    seen = {
        "fsspec": [fs.cat_file(f"acme/shared/by-{name}").decode() for name in names],
        "arrow": [
            arrow.open_input_file(f"acme/shared/by-{name}").read().decode() for name in names
        ],
        "tensorstore": [store.read(f"by-{name}").result().value.decode() for name in names],
        "etils": [epath.Path(f"gs://acme/shared/by-{name}").read_text() for name in names],
        "listed": sorted(path.name for path in epath.Path("gs://acme/shared").iterdir()),
    }
    print(json.dumps(seen))
"""


def test_every_library_reads_what_any_other_wrote_and_so_does_a_mount(run, buckets):
    seen = json.loads(run(WRITE_AND_READ))
    names = ["gcsfs", "arrow", "tensorstore", "etils"]
    assert seen.pop("listed") == sorted(f"by-{name}" for name in names)
    assert seen == dict.fromkeys(("fsspec", "arrow", "tensorstore", "etils"), names)
    mounted = buckets.mounted(volume("acme", "implicit-dirs,only-dir:shared"), POD)
    assert {name: (mounted / f"by-{name}").read_text() for name in names} == {
        name: name for name in names
    }


POD = {"metadata": {"annotations": {"gke-gcsfuse/volumes": "true"}}}


def volume(bucket, options="implicit-dirs", driver="gcsfuse.csi.storage.gke.io"):
    attributes = {"bucketName": bucket, "mountOptions": options}
    return {"driver": driver, "readOnly": True, "volumeAttributes": attributes}


@pytest.mark.parametrize(
    ("source", "pod", "reason"),
    [
        (volume("acme", "only-dir:nothing/here"), POD, "has no object below nothing/here"),
        (volume("other"), POD, "bucket other does not exist"),
        (volume("acme", "only-dir:../other"), POD, "is in no bucket"),
        (volume("../logs"), POD, "is in no bucket"),
        (volume("acme"), {"metadata": {}}, "gke-gcsfuse/volumes"),
        (volume("acme", driver="pd.csi.storage.gke.io"), POD, "pd.csi.storage.gke.io not found"),
    ],
)
def test_what_gcsfuse_could_not_mount_is_missing(buckets, source, pod, reason):
    with pytest.raises(MissingError, match=reason):
        buckets.mounted(source, pod)


def test_a_bucket_is_there_from_the_start_and_another_is_not(run):
    program = """
        import fsspec
        fs = fsspec.filesystem("gs")
        print(isinstance(fs.ls("acme"), list))
        try:
            fs.ls("nobodys")
        except FileNotFoundError:
            print("none")
    """
    assert run(program).split() == ["True", "none"]


CHECKPOINTS = """
    import sys
    import fsspec, jax, numpy
    from jax.sharding import NamedSharding, PartitionSpec
    from workloads.train.checkpoints import Checkpoints, latest_step
    from workloads.train.step import State

    url = "gs://acme/run/checkpoints"
    cut = NamedSharding(jax.make_mesh((2, 4), ("data", "tensor")), PartitionSpec("tensor", "data"))

    def state(step):
        values = numpy.arange(1024.0, dtype=numpy.float32).reshape(64, 16) + step
        return State({"w": jax.device_put(values, cut)}, {"m": jax.device_put(-values, cut)})

    print(latest_step(url))
    with Checkpoints(url, keep=2) as checkpoints:
        for step in (1, 2, 3):
            checkpoints.save(step, state(step))
    fs = fsspec.filesystem("gs")
    steps = {name.split("/")[3] for name in fs.find("acme/run/checkpoints")}
    print(latest_step(url), sorted(steps))
    shapes = State(
        {"w": jax.ShapeDtypeStruct((64, 16), numpy.float32, sharding=cut)},
        {"m": jax.ShapeDtypeStruct((64, 16), numpy.float32, sharding=cut)},
    )
    with Checkpoints(url, keep=2) as checkpoints:
        restored = checkpoints.restore(3, shapes)
    print(bool((restored.params["w"] == state(3).params["w"]).all()))
    print(bool((restored.optimizer["m"] == state(3).optimizer["m"]).all()))
    print(restored.params["w"].sharding == cut)
    fs.rm("acme/run/checkpoints/3/commit_success.txt")  # as if the last host was lost before it
    fs.invalidate_cache()
    print(latest_step(url))
"""


def test_checkpoints_in_a_bucket_are_kept_restored_and_judged_by_their_end(run, objects):
    _, asked = objects
    asked.clear()
    lines = run(CHECKPOINTS).splitlines()
    assert "acme" in asked  # Orbax looks at the bucket before it deletes: buckets.get
    assert lines == ["0", "3 ['2', '3']", "True", "True", "True", "2"]


SEEN = """
    import subprocess, sys
    from workloads.train.checkpoints import latest_step

    WRITE = "import fsspec, sys; fsspec.filesystem('gs').pipe_file(sys.argv[1], b'')"
    url = "gs://acme/others/checkpoints"
    for name in ("", "10/commit_success.txt", "20/data", "20/commit_success.txt"):
        if name:
            subprocess.run([sys.executable, "-c", WRITE, f"{url}/{name}"], check=True)
        print(latest_step(url))
"""


def test_a_process_sees_the_checkpoints_that_others_wrote_since_it_looked(run):
    assert run(SEEN).split() == ["0", "10", "10", "20"]


CACHE = """
    import jax

    found = []
    jax.monitoring.register_event_listener(lambda event, **_: found.append(event))
    print(float(jax.jit(lambda x: (x @ x.T).sum())(jax.numpy.ones((4, 4)))))
    print("/jax/compilation_cache/cache_hits" in found)
"""


def test_what_one_host_compiled_another_reads_from_the_bucket(run):
    cache = {
        "JAX_COMPILATION_CACHE_DIR": "gs://acme/cache/jax",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    assert run(CACHE, **cache).split() == ["64.0", "False"]
    assert run(CACHE, **cache).split() == ["64.0", "True"]


RAY_TRAIN = """
    import pickle
    from ray.train.v2._internal.execution.storage import StorageContext

    context = StorageContext("gs://acme/pretrain/ray", "train")
    pickle.loads(pickle.dumps(context))._check_validation_file()
    print("usable")
"""


def test_ray_train_keeps_its_state_in_a_bucket_that_it_may_look_at(run, objects):
    _, asked = objects
    asked.clear()
    assert run(RAY_TRAIN).split() == ["usable"]
    assert "acme" in asked  # so the role on objects alone is not enough
