from infra.gke.kubeconfig import kubeconfig
from infra.gke.outputs import outputs
from tests.infra.gke.stacks import declared


def test_a_user_is_told_how_to_get_in():
    told = outputs(declared("dev"))
    assert told["cluster"] == "raytpu-dev"
    assert told["kubeconfig_command"] == (
        "gcloud container clusters get-credentials raytpu-dev --location us-east5 "
        "--project acme-ml --dns-endpoint"
    )
    assert told["namespace"] == "research"
    assert told["urls"] == {"chat": "http://chat-serve-svc.research.svc.cluster.local:8000"}
    assert told["open_services"] == {
        "chat": "kubectl --namespace research port-forward service/chat-serve-svc 8000:8000"
    }
    assert told["open_dashboards"] == {
        "chat": "kubectl --namespace research port-forward service/chat-head-svc 8265:8265"
    }
    assert told["image_repository"] == "us-east5-docker.pkg.dev/acme-ml/raytpu-dev"
    assert told["buckets"]["data"] == "gs://acme-ml-raytpu-dev-data"


def test_of_a_cluster_of_others_nothing_is_claimed():
    assert not {"cluster", "buckets", "kubeconfig_command"} & {*outputs(declared("existing"))}


def test_a_kubeconfig_holds_a_plugin_and_no_credential():
    made = kubeconfig("raytpu-dev", "https://gke-1.us-east5.gke.goog")
    (user,) = made["users"]
    assert [*user["user"]] == ["exec"]
    assert user["user"]["exec"]["command"] == "gke-gcloud-auth-plugin"
    assert made["clusters"][0]["cluster"] == {"server": "https://gke-1.us-east5.gke.goog"}
    (context,) = made["contexts"]
    assert context == {
        "name": made["current-context"],
        "context": {"cluster": made["clusters"][0]["name"], "user": user["name"]},
    }
