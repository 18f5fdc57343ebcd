"""The component that registers a stack's Kubernetes objects, and waits for its workloads."""

from collections.abc import Sequence
from typing import Any, cast

import pulumi
from pydantic import SecretStr

from infra.config import StackConfig
from infra.ray.failures import last_line, log_command, look, patience, still_to_come, way_out
from infra.ray.objects import KubernetesObject, Manifest, objects
from infra.ray.waits import FAILED, WAIT_FOR

AFTER = "raytpu/after"
METADATA = ("metadata",)
HEAD_METADATA = ("spec", "rayClusterConfig", "headGroupSpec", "template", "metadata")
CRD_ATTEMPTS = 60
"""GKE installs the CRDs of its add-ons after the cluster, that of compute classes up to an hour
after. The provider gives up an unknown kind about a minute after it first tried."""


class Workloads(pulumi.ComponentResource):
    """All Kubernetes objects of a stack. The provider comes by the options.

    Every object waits for what the component depends on: Pulumi itself would not make it wait.
    """

    def __init__(
        self,
        name: str,
        config: StackConfig,
        creator: pulumi.ProviderResource,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`creator` is a provider without server-side apply, which would take over what is there.

        It makes what lies outside of the stack's own namespace.
        """
        super().__init__("raytpu:ray:Workloads", name, None, opts)
        self._name = name
        self._creator = creator
        self._needs = _dependencies(opts)
        self._made: dict[str, Object] = {}
        self._went_well: dict[str, pulumi.Output[str]] = {}
        for one in objects(config):
            self._made[one.key] = made = self._register(one)
            if one.kind == "RayJob":
                self._went_well[one.key] = made.went_well(one)
        # What is checked here ends `pulumi up` even if nothing comes after the job.
        self.register_outputs({"jobs": list(self._went_well.values())})

    def _register(self, one: KubernetesObject) -> "Object":
        name = f"{self._name}-{one.key.lower().replace('/', '-')}"
        return Object(
            name,
            self._after_success(one),
            pulumi.ResourceOptions(
                parent=self,
                provider=self._creator if one.shared else None,
                depends_on=[*self._needs, *(self._made[key] for key in one.after)],
                replace_on_changes=[*one.replace_on],
                delete_before_replace=True,  # two objects of one name cannot exist
                ignore_changes=[*one.ignore],
                hooks=_hooks(name, one.manifest),
            ),
        )

    def _after_success(self, one: KubernetesObject) -> Manifest:
        """Tells it of the jobs before it, which are known only when they have succeeded.

        A service is told in its pods, so that it changes with the model that it read, in the way of
        its upgrades. In the metadata it would go, whatever is declared, before the job does: it is
        by them that Pulumi tells objects apart.
        """
        before = [self._went_well[key] for key in one.after if key in self._went_well]
        if not before:
            return one.manifest
        place = HEAD_METADATA if one.kind == "RayService" else METADATA
        return annotated(one.manifest, place, {AFTER: pulumi.Output.all(*before).apply(",".join)})


def annotated(manifest: Manifest, place: Sequence[str], annotations: Manifest) -> Manifest:
    """The manifest with more annotations in the metadata that is at `place`."""
    if not place:
        return {**manifest, "annotations": {**manifest.get("annotations", {}), **annotations}}
    first, *others = place
    return {**manifest, first: annotated(manifest.get(first, {}), others, annotations)}


class Object(pulumi.CustomResource):
    """Any object, typed as Pulumi's Kubernetes provider types it.

    The SDK has a class for each kind, but its modules take seconds to import, and the one for
    custom resources does not give what the cluster says of them.
    """

    metadata: pulumi.Output[dict[str, Any]]
    status: pulumi.Output[dict[str, Any] | None]

    def __init__(self, name: str, manifest: Manifest, opts: pulumi.ResourceOptions) -> None:
        version, kind = manifest["apiVersion"], manifest["kind"]
        group = f"core/{version}" if "/" not in version else version
        secret = ["data", "stringData"] if kind == "Secret" else []
        opts.additional_secret_outputs = secret
        super().__init__(
            f"kubernetes:{group}:{kind}", name, {**_sealed(manifest), "status": None}, opts
        )

    def went_well(self, job: KubernetesObject) -> pulumi.Output[str]:
        """Key and UID of the job, once it is as far as it is waited for.

        Raises RunError if it failed.
        """
        checked = pulumi.Output.all(self.status, self.urn).apply(
            lambda known: check_job(job, cast("dict[str, Any]", known[0] or {}), known[1])
        )
        # A preview knows metadata of what is not made yet, without a UID; the ID it does not know.
        uid = pulumi.Output.all(self.metadata, self.id).apply(lambda known: known[0]["uid"])
        return pulumi.Output.concat(checked, " ", uid)


def check_job(job: KubernetesObject, status: dict[str, Any], urn: str) -> str:
    """A job never comes back from its end, so what failed stays so until it is replaced."""
    found, ran = status.get("jobDeploymentStatus"), status.get("jobStatus")
    succeeded = found == "Complete" and ran == "SUCCEEDED"
    begun = ran or found not in FAILED
    if succeeded or (begun and not job.finishes):
        return job.key
    told = "; ".join(last_line(status[part]) for part in ("reason", "message") if status.get(part))
    see = log_command(job.manifest) if ran else look(job.manifest)
    raise pulumi.RunError(
        f"{job.key} ended as {found} ({told or 'no reason given'}); see {see}, mend it, and run "
        f"`pulumi up --replace '{urn}'`"
    )


def _hooks(name: str, manifest: Manifest) -> pulumi.ResourceHookBinding:
    on_error = [pulumi.ErrorHook(f"{name} (failed)", lambda args: try_again(manifest, args))]
    if WAIT_FOR not in manifest["metadata"].get("annotations", {}):
        return pulumi.ResourceHookBinding(on_error=on_error)
    # Before hours of silence: Pulumi knows nothing of the pods, and why they do not come.
    says = [pulumi.ResourceHook(f"{name} (waits)", lambda _: pulumi.log.info(patience(manifest)))]
    return pulumi.ResourceHookBinding(before_create=says, before_update=says, on_error=on_error)


def try_again(manifest: Manifest, args: pulumi.ErrorHookArgs) -> bool:
    """Whether the kind may still come. Tells the way out of any other error."""
    newest = args.errors[0] if args.errors else ""
    if still_to_come(newest) and len(args.errors) < CRD_ATTEMPTS:
        return True
    if line := way_out(manifest, newest):
        pulumi.log.error(line)
    return False


def _sealed(value: Any) -> Any:
    """Values that the configuration keeps secret, as values that the engine does."""
    match value:
        case SecretStr():
            return pulumi.Output.secret(value.get_secret_value())
        case dict():
            return {key: _sealed(one) for key, one in cast("dict[str, Any]", value).items()}
        case list():
            return [_sealed(one) for one in cast("list[Any]", value)]
        case _:
            return value


def _dependencies(opts: pulumi.ResourceOptions | None) -> Sequence[pulumi.Resource]:
    given = opts.depends_on if opts else None
    return [one for one in cast("list[Any]", given or []) if isinstance(one, pulumi.Resource)]
