"""`raytpu review`: what it says of files, where, and how it ends."""

import io
import json
import os
import subprocess
import time

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from infra.cli.app import app
from policies import report
from policies.documents import read
from policies.evaluate import evaluate
from policies.preview import read_preview
from policies.settings import DEFAULTS
from policies.view import View
from tests.policies.cases import HF, JOB, JOB_GROUP
from tests.policies.sets import GOOD, changed, good, put
from tests.tools.project import REPOSITORY

GOLDEN = sorted(path for path in (REPOSITORY / "tests/golden").iterdir() if path.is_dir())
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: one}
spec:
  containers:
    - name: main
      image: us-docker.pkg.dev/acme/a/a:1
"""
PRIVILEGED = POD + "      securityContext:\n        privileged: true\n"
"""Found in line 9."""

TEXT = {
    "type": "object",
    "required": ["text"],
    "properties": {"text": {"type": "string", "minLength": 1}},
}
PLACE = {
    "type": "object",
    "additionalProperties": False,
    "minProperties": 1,
    "properties": {
        "logicalLocations": {
            "type": "array",
            "items": {"type": "object", "required": ["fullyQualifiedName"]},
        },
        "physicalLocation": {
            "type": "object",
            "required": ["artifactLocation", "region"],
            "properties": {
                "artifactLocation": {
                    "type": "object",
                    "required": ["uri"],
                    "properties": {"uri": {"type": "string", "format": "uri-reference"}},
                },
                "region": {
                    "type": "object",
                    "required": ["startLine"],
                    "properties": {"startLine": {"type": "integer", "minimum": 1}},
                },
            },
        },
    },
}
SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "$schema": {"type": "string"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "properties": {
                    "tool": {
                        "type": "object",
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "type": "object",
                                "required": ["name", "rules"],
                                "properties": {
                                    "rules": {
                                        "type": "array",
                                        "uniqueItems": True,
                                        "items": {
                                            "type": "object",
                                            "required": ["id"],
                                            "properties": {
                                                "shortDescription": TEXT,
                                                "fullDescription": TEXT,
                                            },
                                        },
                                    }
                                },
                            }
                        },
                    },
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "invocations": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["executionSuccessful"],
                            "properties": {"executionSuccessful": {"type": "boolean"}},
                        },
                    },
                    "results": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["message", "ruleId", "level", "locations"],
                            "properties": {
                                "kind": {"enum": ["fail", "open"]},
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "message": TEXT,
                                "locations": {"type": "array", "items": PLACE},
                            },
                        },
                    },
                },
            },
        },
    },
}
"""What SARIF 2.1.0 demands of the parts that are written here (OASIS, sections 3.13 to 3.34)."""


def review(*arguments, stdin=None):
    return CliRunner().invoke(app, ["review", *map(str, arguments)], input=stdin)


@pytest.mark.parametrize("text", ["", "config:\n  raytpu:environment: dev\n", "- 1\n"])
def test_a_file_without_an_object_is_not_taken_for_a_clean_one(tmp_path, text):
    """A stack file, for example: it is judged as what is rendered of it."""
    file = tmp_path / "Pulumi.dev.yaml"
    file.write_text(text)
    done = CliRunner().invoke(app, ["review", str(file)])
    assert done.exit_code == 2
    assert "Pulumi.dev.yaml" in done.stderr


def test_a_finding_has_the_file_the_line_and_the_way_out(tmp_path):
    file = tmp_path / "pod.yaml"
    file.write_text(PRIVILEGED)
    done = review(file)
    assert done.exit_code == 1
    [line] = [line for line in done.stdout.splitlines() if "security-privileged" in line]
    assert line.startswith(f"{file}:9: Pod/one spec.containers[0].securityContext.privileged: ")
    assert line.endswith("; write false [mandatory: security-privileged]")


def test_each_of_several_documents_has_its_own_lines(tmp_path):
    (tmp_path / "a.yaml").write_text(f"# nothing\n---\n{POD}---\n{PRIVILEGED}")
    found = json.loads(review(tmp_path, "--json").stdout)["findings"]
    assert [(one["line"], one["name"]) for one in found] == [(19, "one")]


def test_an_absent_field_is_shown_where_it_belongs(tmp_path):
    """At the deepest part of its path that is there."""
    text = "apiVersion: v1\nkind: List\nitems:\n" + "".join(
        f"  {'- ' if index == 0 else '  '}{line}\n" for index, line in enumerate(POD.splitlines())
    )
    text += "          resources:\n            limits:\n              google.com/tpu: 4\n"
    (tmp_path / "list.yaml").write_text(text)
    found = json.loads(review(tmp_path, "--json").stdout)["findings"]
    assert {one["line"] for one in found if one["rule"] == "slices-shape"} == {7}


def test_standard_input_is_read_as_well():
    assert review("-", stdin=PRIVILEGED).exit_code == 1
    assert review("-", stdin=POD).exit_code == 0


def test_a_clean_set_exits_with_0():
    assert review("--environment", "prod", GOOD).exit_code == 0


def test_advisory_findings_do_not_fail(tmp_path):
    job = changed(good("training"), JOB, {"spec.submissionMode": "SidecarMode"})
    (tmp_path / "job.yaml").write_text(yaml.safe_dump_all(job["training.yaml"]))
    done = review("--environment", "prod", tmp_path)
    assert done.exit_code == 0
    assert "[advisory: capacity-job-submitter]" in done.stdout


@pytest.mark.parametrize("folder", GOLDEN, ids=lambda path: path.name)
def test_what_our_own_stacks_make_has_no_mandatory_finding(folder):
    environment = folder.name if folder.name in DEFAULTS else "staging"
    done = review("--json", "--environment", environment, folder)
    found = json.loads(done.stdout)
    assert [one for one in found["findings"] if one["level"] == "mandatory"] == []
    assert found["not_evaluated"] == []
    assert done.exit_code == 0


def test_a_renderings_environment_is_read_from_its_labels():
    golden = REPOSITORY / "tests/golden/prod"
    assert json.loads(review("--json", golden).stdout)["environment"] == "prod"


def test_a_finding_in_a_rendering_has_the_line_of_its_argument(tmp_path):
    [cluster] = good("cloud")["container.Cluster.json"]
    cluster["deletion_protection"] = False
    (tmp_path / "container.Cluster.json").write_text(json.dumps([cluster], indent=1))
    found = json.loads(review("--json", tmp_path).stdout)["findings"]
    assert [(one["rule"], one["line"]) for one in found] == [("changes-protection", 4)]


def test_sarif_has_the_shape_of_its_version(tmp_path):
    (tmp_path / "a pod.yaml").write_text(f"{PRIVILEGED}---\n{POD.replace('main', '{{ .x }}')}")
    (tmp_path / "broken.yaml").write_text("a: [")
    done = review("--sarif", tmp_path)
    log = json.loads(done.stdout)
    jsonschema.validate(log, SARIF)
    [run] = log["runs"]
    assert run["invocations"][0]["executionSuccessful"] is False
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"].endswith("/a%20pod.yaml")
    assert place["region"] == {"startLine": 9}
    used = {result["ruleId"] for result in run["results"]}
    assert used <= {rule["id"] for rule in run["tool"]["driver"]["rules"]}


BAD = {
    "broken": (b"a: [1, 2\nb: }", "is no YAML"),
    "tab": (b"a:\n\t- b", "is no YAML"),
    "latin-1": ("name: M\xfcller".encode("latin-1"), "is not UTF-8 at byte 7"),
    "null byte": (b"a: \x00", "is no YAML"),
    "template": (b"replicas: {{ .Values.replicas }}\n{{- if .x }}", "helm template"),
    "itself": (b"a: &a\n  b: *a\n", "contains itself"),
    "bomb": (
        b"a: &a [x,x,x,x,x,x,x,x,x]\n"
        + b"".join(
            b"%c: &%c [%s]\n" % (i, i, b",".join([b"*%c" % (i - 1)] * 9)) for i in range(98, 110)
        ),
        "holds over",
    ),
    "merge bomb": (
        b"a: &a {x: 1}\n"
        + b"".join(
            b"%c: &%c {<<: [%s]}\n" % (i, i, b",".join([b"*%c" % (i - 1)] * 9))
            for i in range(98, 110)
        ),
        "holds over",
    ),
    "deep": (b"[" * 500 + b"]" * 500, "nested deeper"),
    "deeper": (b"[" * 100_000, "is no YAML"),
    "tag": (b"a: !!python/object/apply:os.system [ls]", "is no YAML"),
    "date": (b"a: 2020-13-45", "is no YAML"),
    "digits": (b"a: " + b"1" * 10_000, "is no YAML"),
    "keys": (b"? {a: b}\n: c", "is no YAML"),
    "huge": (b"#" * (16 * 2**20 + 1), "larger than 16 MiB"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_one_line(name, tmp_path):
    content, says = BAD[name]
    file = tmp_path / "bad.yaml"
    file.write_bytes(content)
    (tmp_path / "pod.yaml").write_text(PRIVILEGED)
    done = review(tmp_path)
    assert done.exit_code == 2
    [line] = done.stderr.splitlines()
    assert line.startswith(f"{file}:")
    assert says in line
    assert len(line) < 400
    assert "security-privileged" in done.stdout, "the others are judged all the same"


def test_links_that_go_round_end(tmp_path):
    (tmp_path / "round").symlink_to(tmp_path)
    (tmp_path / "a.yaml").symlink_to(tmp_path / "b.yaml")
    (tmp_path / "b.yaml").symlink_to(tmp_path / "a.yaml")
    done = review(tmp_path)
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 2


def test_a_pipe_without_a_writer_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.yaml")
    assert "is no regular file" in review(tmp_path / "a.yaml").stderr


def test_a_file_that_is_not_there_is_said():
    done = review("nowhere.yaml")
    assert (done.exit_code, done.stdout.splitlines()[-1][:9]) == (2, "0 objects")
    assert (
        done.stderr
        == "nowhere.yaml: cannot be read (No such file or directory); name a file that can\n"
    )


PIECES = st.sampled_from(
    [
        *"{}[]:,-&*!|>?#%@`'\"\t\n \\",
        "kind: ",
        "apiVersion: ray.io/v1\n",
        "<<: ",
        "&a ",
        "*a",
        "---\n",
    ]
)


@given(st.lists(PIECES | st.text(max_size=3), max_size=30).map("".join) | st.binary(max_size=40))
@settings(max_examples=300, deadline=None)
def test_whatever_bytes_there_are_end_in_objects_or_one_line(content):
    raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    found = read(["-"], io.BytesIO(raw))
    assert len(found.unreadable) <= 1
    assert all(line.startswith("-:") and "\n" not in line for line in found.unreadable)
    evaluate(View(found.items), DEFAULTS["prod"], "prod")


ANYTHING = (None, [], {}, "", "x", 0, -1, True, 1.5, [None], [{}], {"a": None}, "{{ x }}")


@pytest.mark.parametrize("value", ANYTHING, ids=repr)
@pytest.mark.parametrize("name", ["training", "serving", "told", "others"])
def test_a_value_of_a_wrong_form_is_a_finding_or_none_but_never_a_fault(name, value, tmp_path):
    """In place of each value of a correct set, one at a time."""
    paths = [*_paths(good(name))]
    for index, path in enumerate(paths[:: max(len(paths) // 40, 1)]):
        documents = good(name)
        put(documents, path, value)
        folder = tmp_path / str(index)
        folder.mkdir()
        text = yaml.dump_all(documents[f"{name}.yaml"], Dumper=yaml.CSafeDumper)
        (folder / "a.yaml").write_text(text)
        found = evaluate(View(read([str(folder)], io.BytesIO()).items), DEFAULTS["prod"], "prod")
        assert [*report.lines(found)] or not found.findings, path


def _paths(value, path=()):
    children = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, child in children:
        if len(path) >= 1:
            yield (*path, key)
        yield from _paths(child, (*path, key))


def test_a_wrong_form_is_a_finding(tmp_path):
    documents = changed(good("training"), JOB, {"spec.rayClusterSpec.workerGroupSpecs": "four"})
    (tmp_path / "job.yaml").write_text(yaml.safe_dump_all(documents["training.yaml"]))
    done = review(tmp_path)
    assert done.exit_code == 1
    lines = [line for line in done.stdout.splitlines() if "documents-form" in line]
    assert len(lines) == 1
    assert "spec.rayClusterSpec.workerGroupSpecs: is not a list" in lines[0]


def test_a_template_that_is_yaml_is_not_evaluated_and_fails_when_strict(tmp_path):
    documents = changed(good("training"), JOB, {f"{JOB_GROUP}.numOfHosts": "{{ .Values.hosts }}"})
    (tmp_path / "job.yaml").write_text(yaml.safe_dump_all(documents["training.yaml"]))
    done = review("--environment", "prod", tmp_path)
    assert done.exit_code == 0
    assert "slices-hosts was not evaluated for RayJob/pretrain" in done.stdout
    assert review("--environment", "prod", "--strict", tmp_path).exit_code == 1


def test_a_secret_in_a_template_is_found_all_the_same(tmp_path):
    (tmp_path / "a.yaml").write_text(f"{POD}      args: ['{{{{ .x }}}} {HF}']\n")
    done = review(tmp_path)
    assert "secrets-literal" in done.stdout
    assert HF not in done.stdout


def test_another_groups_kind_of_the_same_name_is_another(tmp_path):
    """Knative's Service has other fields."""
    service = "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: a}\nspec: []\n"
    (tmp_path / "a.yaml").write_text(service)
    assert review(tmp_path).exit_code == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("environments: {prod: {levels: {no-such: off}}}", "is no rule"),
        ("environments: {prod: {levels: {images-pinned: loud}}}", "input should be"),
        ("environments: [prod]", "input should be"),
        ("limits: {}", "extra inputs"),
        ("[", "cannot be read"),
    ],
)
def test_faults_of_settings_are_said(text, says, tmp_path):
    (tmp_path / "settings.yaml").write_text(text)
    done = review("--environment", "prod", "--settings", tmp_path / "settings.yaml", GOOD)
    assert done.exit_code == 2
    assert says in done.stderr


def test_settings_hold_for_their_environment_alone(tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text("environments: {dev: {limits: {generations: [v5e]}}}")
    assert review("--environment", "dev", "--settings", file, GOOD).exit_code == 1
    assert review("--environment", "prod", "--settings", file, GOOD).exit_code == 0


def step(op, name, type_, inputs, **state):
    urn = f"urn:pulumi:prod::raytpu::{type_}::{name}"
    made = {"type": type_, "inputs": inputs, **state}
    sides = {"create": ("newState",), "delete": ("oldState",)}.get(op, ("oldState", "newState"))
    return {"op": op, "urn": urn, **dict.fromkeys(sides, made)}


POOL = {"nodeConfig": {"machineType": "ct6e-standard-4t"}}


def preview(*steps, **more):
    return json.dumps({"config": {"raytpu:environment": "prod"}, "steps": [*steps], **more})


def changes(text, chosen):
    found = evaluate(read_preview(text, "-"), chosen, "prod").findings
    return {f.fault.item.name: f.fault.what for f in found if f.rule == "changes-keep"}


@pytest.mark.parametrize("op", ["replace", "delete", "create-replacement", "delete-replaced"])
def test_a_preview_that_takes_away_a_pool_bucket_or_cluster_is_refused(op):
    steps = [
        step(op, "gke-train-0", "gcp:container/nodePool:NodePool", POOL),
        step(op, "gke-cluster", "gcp:container/cluster:Cluster", {}),
        step(op, "gke-storage-data", "gcp:storage/bucket:Bucket", {}),
        step(op, "gke-cpu", "gcp:container/nodePool:NodePool", {}),
    ]
    names = {"gke-train-0", "gke-cluster", "gke-storage-data"}
    assert changes(preview(*steps), DEFAULTS["prod"]).keys() == names


def test_an_allowance_names_what_may_go():
    text = preview(step("replace", "gke-train-0", "gcp:container/nodePool:NodePool", POOL))
    allow = DEFAULTS["prod"].allow.model_copy(update={"replace": ("gke-train-0",)})
    assert not changes(text, DEFAULTS["prod"].model_copy(update={"allow": allow}))


def test_a_pool_that_is_new_or_stays_is_let_through():
    """P10: adding a pool replaces no other."""
    steps = [
        step(op, name, "gcp:container/nodePool:NodePool", POOL)
        for op, name in (("same", "a"), ("update", "b"), ("create", "c"))
    ]
    assert not changes(preview(*steps), DEFAULTS["prod"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is no JSON of a preview"),
        ("[]", "is no JSON of a preview"),
        ('{"steps": [{}]}', "is no JSON of a preview"),
        (preview(changeSummary={"same": 3}), "leaves out 3 resources"),
        (preview(diagnostics=[{"severity": "error", "message": "no\nway"}]), "failed (no)"),
    ],
)
def test_what_is_no_whole_preview_is_refused(text, says, tmp_path):
    (tmp_path / "preview.json").write_text(text)
    done = review("--preview", tmp_path / "preview.json")
    assert done.exit_code == 2
    assert says in done.stderr


@pytest.mark.timeout(60)
def test_a_thousand_documents_are_no_matter_of_minutes(tmp_path):
    """The bench measures it; this only sees that time grows with the documents."""
    text = (GOOD / "training.yaml").read_text().partition("---\n")[0]

    def seconds(count):
        (tmp_path / "many.yaml").write_text("---\n".join([text] * count))
        begun = time.process_time()
        review(tmp_path)
        return time.process_time() - begun

    assert seconds(400) < 8 * seconds(100)


def test_make_review_asks_for_all_steps_and_changes_nothing():
    planned = subprocess.run(
        ["make", "--dry-run", "review", "STACK=prod", "SETTINGS=policies.yaml"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "pulumi preview --stack prod --json --show-sames" in planned
    assert "review --preview .raytpu/previews/prod.json --settings policies.yaml" in planned
    assert "pulumi up" not in planned
