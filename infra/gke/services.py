"""The Google APIs that the stack calls, switched on in the project, and the project's number."""

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.config import StackConfig
from infra.gke import names
from infra.gke.args import Args

APIS = (
    "artifactregistry",
    "cloudresourcemanager",
    "compute",
    "container",
    "containerfilesystem",  # image streaming
    "iam",
    "logging",
    "monitoring",
    "secretmanager",
    "storage",
)


@dataclass(frozen=True)
class ServicesArgs:
    project: str
    services: tuple[Args, ...]


def services_args(config: StackConfig) -> ServicesArgs:
    """An API outlives the stack: others in the project may have come to use it."""
    project = names.google_cluster(config).project
    return ServicesArgs(
        project=project,
        services=tuple(
            {"project": project, "service": f"{api}.googleapis.com", "disable_on_destroy": False}
            for api in APIS
        ),
    )


class Services(pulumi.ComponentResource):
    """APIs of the project. Whatever is made on Google Cloud depends on them."""

    def __init__(
        self, name: str, args: ServicesArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("raytpu:gke:Services", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        services = [
            gcp.projects.Service(f"{name}-{api}", **service, opts=child)
            for api, service in zip(APIS, args.services, strict=True)
        ]
        # Asked only once its API is on: the first preview of an empty project has no answer yet.
        project = gcp.organizations.get_project_output(
            project_id=args.project,
            opts=pulumi.InvokeOutputOptions(parent=self, depends_on=services),
        )
        self.project_number: pulumi.Output[str] = project.number
        self.register_outputs({})
