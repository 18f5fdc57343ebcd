"""What is built from Go modules: the programs of each target, and what else its folder holds.

A target is a folder of tools/go with its go.mod, built into the folder of the same name in
.tools/go. Programs that only work together with the same packages share a target: Go compiles a
package once for all of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

OWN = "raytpu/tools/go"
PULUMI_CLI = "github.com/pulumi/pulumi/pkg/v3"
PULUMI_SDK = "github.com/pulumi/pulumi/sdk/v3"
KUBERAY = "github.com/ray-project/kuberay/ray-operator"
KUBERNETES = "k8s.io/kubernetes"

LANGUAGE_HOST = """\
#!/bin/sh
# Made by tools/go/build.py: the engine finds its language host by this name.
here=$(cd "$(dirname "$0")" && pwd -P)
root=$(cd "$here/../../.." && pwd -P)
exec "$root/.venv/bin/python" "$root/tools/pulumi/language_host.py" \\
    --executor "$here/pulumi-language-python-exec" --parent "$PPID" "$@"
"""


@dataclass(frozen=True)
class Target:
    """Programs that are built together."""

    title: str
    programs: Mapping[str, str]
    """The Go package of each, by the name that its file gets."""
    minutes: int
    """Of a first build on 2 cores."""
    modules_gib: float
    """To fetch the first time."""
    needed_gib: float
    """Of a first build: modules, compiled packages, programs, and air."""
    way_out: str
    """How to come by the programs without a build."""
    stamps: Mapping[str, str] = field(default_factory=dict)
    """Variables of Go that get the version of a module: only a release's own build sets them."""
    pinned: frozenset[str] = frozenset()
    """Programs that are built even if there is one on PATH: theirs is the version that counts."""
    copies: tuple[tuple[str, str], ...] = ()
    """Files and folders of a module that the programs need beside them."""
    scripts: Mapping[str, str] = field(default_factory=dict)


TARGETS = {
    "pulumi": Target(
        title="Pulumi",
        programs={"pulumi": f"{PULUMI_CLI}/cmd/pulumi"},
        minutes=5,
        modules_gib=1.6,
        needed_gib=5,
        way_out="install Pulumi (https://www.pulumi.com/docs/install)",
        stamps={f"{PULUMI_SDK}/go/common/version.Version": PULUMI_CLI},
        copies=(
            (PULUMI_SDK, "python/cmd/pulumi-language-python-exec"),
            (PULUMI_SDK, "python/dist/pulumi-resource-pulumi-python"),
        ),
        scripts={"pulumi-language-python": LANGUAGE_HOST},
    ),
    "cluster": Target(
        title="the cluster's programs",
        programs={
            "etcd": "go.etcd.io/etcd/server/v3",
            "kube-apiserver": f"{KUBERNETES}/cmd/kube-apiserver",
            "kube-controller-manager": f"{KUBERNETES}/cmd/kube-controller-manager",
            "kube-scheduler": f"{KUBERNETES}/cmd/kube-scheduler",
            "kuberay-operator": KUBERAY,
            "coredns": f"{OWN}/cluster/dns",
            "fake-gcs-server": "github.com/fsouza/fake-gcs-server",
        },
        minutes=12,
        modules_gib=1.5,
        needed_gib=6,
        way_out="put these programs on PATH",
        stamps={"k8s.io/component-base/version.gitVersion": KUBERNETES},
        pinned=frozenset({"kuberay-operator"}),
        copies=((KUBERAY, "config"),),  # its resource definitions, role and Deployment
    ),
    "provider": Target(
        title="Pulumi's provider for Kubernetes",
        programs={"pulumi-resource-kubernetes": f"{OWN}/provider"},
        minutes=10,
        modules_gib=1.5,
        needed_gib=5,
        way_out="install the plugin (`pulumi plugin install resource kubernetes`)",
    ),
}


def folder(root: Path, target: str) -> Path:
    """Where the project at `root` has what was built for a target."""
    return root / ".tools/go" / target
