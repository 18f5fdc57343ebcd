"""A real Kubernetes cluster on this machine, to look at with kubectl: python -m tools.cluster."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tools.cluster.instance import ROOT, Instance, InstanceError
from tools.cluster.network import NetworkError

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)

Folder = Annotated[Path, typer.Option(help="Where its state and logs are.")]
OWN_FOLDER = ROOT / ".raytpu/cluster"


@app.command()
def up(
    stack: Annotated[
        str, typer.Option(help="Whose slices it has nodes for: a name or a file.")
    ] = "existing",
    folder: Folder = OWN_FOLDER,
) -> None:
    """Start a cluster with the nodes of a stack; it stays up until `down`."""
    instance = Instance(folder.resolve())
    if instance.process() and (ready := instance.ready()):
        typer.echo(f"It is up, for stack {ready['stack']}.")
    else:
        typer.echo("Starting; it takes about a minute.")
        ready = instance.start(stack, outlives_us=True)
    typer.echo(
        f"export KUBECONFIG={ready['kubeconfig']}\n"
        "kubectl get nodes          # one a host of each slice\n"
        "kubectl get pods -A        # logs and describe work, exec does not\n"
        f"tools/run pulumi up --stack {ready['stack']}\n"
        f"Logs of its programs: {instance.log.parent}"
    )


@app.command()
def down(folder: Folder = OWN_FOLDER) -> None:
    """End the cluster and all its pods."""
    was_up = Instance(folder.resolve()).stop()
    typer.echo("It is down." if was_up else "It was not up.")


@app.command()
def status(folder: Folder = OWN_FOLDER) -> None:
    """Say whether the cluster is up; exits with 3 if it is not."""
    instance = Instance(folder.resolve())
    if instance.process() is None:
        typer.echo("down")
        raise typer.Exit(3)
    ready = instance.ready()
    typer.echo(f"up, KUBECONFIG={ready['kubeconfig']}" if ready else "starting")


def main() -> None:
    try:
        app()
    except (InstanceError, NetworkError) as error:
        sys.stderr.write(f"cluster: {error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
