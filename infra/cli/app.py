"""The `raytpu` command: what can be known about a stack without an engine, a cloud or a network."""

import io
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # it prints local variables, and those may hold secrets
)


@app.callback()
def raytpu() -> None:
    """Ray on Cloud TPU from one declaration of a slice."""


@app.command()
def check(
    stacks: Annotated[
        list[str], typer.Argument(metavar="STACK", help="Names such as `local`, or stack files.")
    ],
    *,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")] = False,
) -> None:
    """Report all faults of stack files, and what their slices resolve to.

    Exits with 0 if they are sound, 1 if one has faults, 2 if one could not be read.
    """
    from infra.cli import report
    from infra.cli.check import check as check_stack

    reports = [check_stack(stack) for stack in stacks]
    if json:
        report.print_json(reports)
    else:
        report.print_text(reports)
    raise typer.Exit(max(one.exit_code for one in reports))


@app.command()
def render(
    stacks: Annotated[
        list[str], typer.Argument(metavar="STACK", help="Names such as `dev`, or stack files.")
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write into DIR/STACK instead of to stdout."),
    ] = None,
) -> None:
    """Show all that stacks would make: cloud resources as JSON, Kubernetes objects as YAML.

    No engine, credentials or network is needed. Nothing is shown unless all stacks are sound: exits
    with 1 if one has faults, 2 if one could not be read or its rendering not be written.
    """
    from infra.cli.check import check as check_stack
    from infra.cli.render import show

    raise typer.Exit(show([check_stack(stack) for stack in stacks], out))


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a message must not fail on its letters
    app()
