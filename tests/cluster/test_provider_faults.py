"""What goes wrong between `pulumi up` and the API server, and what the user is told of it."""

from contextlib import contextmanager
from functools import partial

import psutil
import pytest

from tests.cluster.played import PlayedOperator, fine
from tests.cluster.real_stack import RealStack, finished
from tests.cluster.seen import names, ray, request, said_until, wait_for
from tools.cluster.control_plane import ROOT, free_ports
from tools.cluster.operator import create, definitions
from tools.cluster.program import Program
from tools.go.build import find

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

ADMISSION = "/apis/admissionregistration.k8s.io/v1/validatingadmission"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
def stack(control_plane, provider, tmp_path, request):  # noqa: ARG001 - built before
    name = request.node.originalname.removeprefix("test_").replace("_", "-")[:30].strip("-")
    return RealStack.apart(tmp_path, control_plane.kubeconfig, name)


def errors(done):
    return [line.strip() for line in done.output.splitlines() if line.strip().startswith("error:")]


def test_a_namespace_of_others_is_left_alone(stack, control_plane):
    ask = partial(request, control_plane.api)
    theirs = ask("POST", "/api/v1/namespaces", {"metadata": {"name": stack.name}})
    done = stack.up()
    assert done.code != 0
    told = (
        f"error: Namespace/{stack.name} is there already and is not this stack's, which would "
        "delete it one day: change raytpu:team.namespace, or, if nothing in it is needed, run "
        f"`kubectl delete namespace {stack.name}`"
    )
    assert told in errors(done)
    assert stack.destroy().code == 0
    left = ask("GET", f"/api/v1/namespaces/{stack.name}")
    assert left["metadata"]["uid"] == theirs["metadata"]["uid"]
    assert left["metadata"]["labels"] == {"kubernetes.io/metadata.name": stack.name}


def test_a_refusal_at_admission_is_shown_in_the_words_of_who_refused(stack, control_plane):
    said = "jobs of this cluster need a label `cost`, see https://example.com/rules"
    with admission_policy(control_plane.api, stack.name, said):
        done = stack.up()
    assert done.code != 0
    assert said in done.output
    assert "RayJob" in next(line for line in done.output.splitlines() if said in line)


@contextmanager
def admission_policy(api, namespace, message):
    """Refuses the Ray jobs of a namespace."""
    rule = {
        "apiGroups": ["ray.io"],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["rayjobs"],
    }
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "false", "message": message}],
    }
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    bound = {"policyName": namespace, "validationActions": ["Deny"], "matchResources": here}
    made = {f"{ADMISSION}policies": spec, f"{ADMISSION}policybindings": bound}
    for path, content in made.items():
        request(api, "POST", path, {"metadata": {"name": namespace}, "spec": content})
    yield
    for path in made:
        request(api, "DELETE", f"{path}/{namespace}")


def test_a_field_that_another_manager_took_is_named_with_the_way_out(stack, control_plane):
    with PlayedOperator(control_plane.api, stack.name):
        assert stack.up().code == 0
        edit(control_plane.api, stack.name, manager="dashboard")
        more_at_once(stack)
        refused = stack.up()
        stack.environ["PULUMI_K8S_ENABLE_PATCH_FORCE"] = "true"
        forced = stack.up()
    assert refused.code != 0
    told = (
        "error: RayService/chat was changed by others: dashboard holds .spec.serveConfigV2; undo "
        "the change there, or put this stack's values in its place: "
        "`PULUMI_K8S_ENABLE_PATCH_FORCE=true pulumi up`"
    )
    assert told in errors(refused), refused.output
    assert forced.code == 0, forced.output


def test_what_was_edited_with_kubectl_is_shown_by_a_preview_and_taken_back(stack, control_plane):
    """The provider takes over what kubectl wrote last, as if it were its own of older days."""
    with PlayedOperator(control_plane.api, stack.name):
        assert stack.up().code == 0
        edit(control_plane.api, stack.name, manager="kubectl-edit")
        more_at_once(stack)
        preview = stack.preview()
        done = stack.up()
    assert "kubectl-edit" in preview.output, preview.output
    assert ".spec.serveConfigV2" in preview.output
    assert done.code == 0, done.output
    live = request(control_plane.api, "GET", f"{ray(stack.name, 'rayservices')}/chat")
    assert "max_batch: 2" in live["spec"]["serveConfigV2"]


def edit(api, namespace, manager):
    path = f"{ray(namespace, 'rayservices')}/chat?fieldManager={manager}"
    request(api, "PATCH", path, {"spec": {"serveConfigV2": "applications: []"}})


def more_at_once(stack):
    data, pretrain, chat = stack.declared["workloads"]
    stack.declare(workloads=[data, pretrain, {**chat, "max_batch": 2}])


def test_an_api_server_that_restarts_is_waited_for(stack, control_plane):
    played = PlayedOperator(control_plane.api, stack.name, lambda _: None)
    with played as operator, stack.going_up() as running:
        wait_for("a job", lambda: bool(names(control_plane.api, ray(stack.name, "rayjobs"))))
        control_plane.restart_api_server()
        operator.play = fine
        done = finished(running)
    assert done.code == 0, done.output


def test_a_killed_up_takes_the_provider_with_it(stack, control_plane):
    """It would go on with what it was told to make."""

    def providers():
        lines = [
            " ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])
        ]
        return [
            line for line in lines if line.startswith(f"{stack.root}/") and "kubernetes" in line
        ]

    with PlayedOperator(control_plane.api, stack.name, lambda _: None):
        with stack.going_up():
            wait_for("a job", lambda: bool(names(control_plane.api, ray(stack.name, "rayjobs"))))
            assert providers()
        assert providers() == []


def test_a_kind_that_comes_late_is_waited_for(stack, control_plane):
    [late] = [d for d in definitions() if d["metadata"]["name"].startswith("computeclasses")]
    request(control_plane.api, "DELETE", f"{DEFINITIONS}/{late['metadata']['name']}")
    with PlayedOperator(control_plane.api, stack.name), stack.going_up() as running:
        said = said_until(running, "retrying create due to on-error hook request (1/100)")
        create(control_plane.api, late)
        done = finished(running)
    assert done.code == 0, said + done.output


def test_an_api_server_that_does_not_answer_is_named_once(stack, control_plane):
    address = cut_off(stack, control_plane)
    done = stack.up()
    assert done.code != 0
    named = [line for line in errors(done) if address in line]
    assert len(named) == 1, done.output
    assert "unreachable" in named[0]


def test_why_something_cannot_be_deleted_is_told(stack, control_plane):
    """`pulumi destroy` runs no program, and so none of its hooks."""
    own_kubeconfig(stack, control_plane.server, control_plane)
    with PlayedOperator(control_plane.api, stack.name):
        assert stack.up().code == 0
    cut_off(stack, control_plane)
    done = stack.destroy()
    assert done.code != 0
    assert "configured Kubernetes cluster is unreachable" in done.output


def cut_off(stack, control_plane):
    """From now on the stack's API server is an address at which nobody listens."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    own_kubeconfig(stack, f"https://{address}", control_plane)
    return address


def own_kubeconfig(stack, server, control_plane):
    """The second of two files, as kubectl reads them."""
    text = control_plane.kubeconfig.read_text().replace(control_plane.server, server)
    (stack.root / "kubeconfig").write_text(text)
    stack.environ["KUBECONFIG"] = f"{stack.root}/none:{stack.root}/kubeconfig"


def test_without_a_kubeconfig_one_line_says_so(stack):
    stack.environ["KUBECONFIG"] = str(stack.root / "nowhere")
    done = stack.preview()
    assert done.code != 0
    told = (
        f"error: raytpu:cluster.kubeconfig: there is no file {stack.root}/nowhere; write the path "
        "of a kubeconfig there, or set KUBECONFIG"
    )
    assert [line for line in errors(done) if "preview failed" not in line] == [told]


def test_pods_over_quota_show_where_the_user_is_told_to_look(stack, control_plane, tmp_path):
    """The operator writes of them as events of its Ray cluster, of which Pulumi knows nothing."""
    stack.give_up_after(seconds=10)
    data, *others = stack.declared["workloads"]
    stack.declare(workloads=[{**data, "start_deadline": "10s", "deadline": "20s"}, *others])
    ask = partial(request, control_plane.api)
    here = f"/api/v1/namespaces/{stack.name}"
    with real_operator(control_plane, tmp_path), stack.going_up() as running:
        wait_for(
            "a namespace", lambda: stack.name in names(control_plane.api, "/api/v1/namespaces")
        )
        none = {"metadata": {"name": "theirs"}, "spec": {"hard": {"pods": "0"}}}
        ask("POST", f"{here}/resourcequotas", none)
        done = finished(running)
    assert done.code != 0
    look = f"`kubectl --namespace {stack.name} get events --field-selector type=Warning`"
    assert any(look in line for line in errors(done)), done.output
    events = ask("GET", f"{here}/events?fieldSelector=type%3DWarning")["items"]
    assert any("exceeded quota: theirs" in event["message"] for event in events)


def real_operator(control_plane, folder):
    """Makes pods, which nothing runs here."""
    options = ("enable-leader-election=false", "metrics-addr=0", "health-probe-bind-address=0")
    command = [find("kuberay-operator", ROOT), *(f"--{option}" for option in options)]
    environ = {"KUBECONFIG": str(control_plane.kubeconfig), "HOME": str(folder)}
    return Program("kuberay-operator", command, folder, environ)
