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


@app.command()
def cost(
    stack: Annotated[str, typer.Argument(metavar="STACK", help="A name such as `dev`, or a file.")],
    *,
    against: Annotated[
        str | None,
        typer.Option(metavar="STACK_OR_COMMIT", help="Compare with it, or with the file there."),
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Your own prices, which come first.")
    ] = None,
    hours_per_month: Annotated[
        float, typer.Option(min=0, max=744, help="Of what stays; a month has 730.")
    ] = 730.0,
    runs_per_month: Annotated[int, typer.Option(min=0, help="Of each training job.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="For a pull request.")] = False,
) -> None:
    """Show what a stack costs a month at best and at worst, by dated prices.

    Exits with 0; with 1 if the stack has faults or is above its budget, 2 if it could not be read.
    """
    from infra.cli.cost import show
    from infra.cost.estimate import Usage

    usage = Usage(hours_per_month, runs_per_month)
    form = "json" if json else "markdown" if markdown else "text"
    raise typer.Exit(show(stack, against=against, prices_file=prices, usage=usage, form=form))


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a message must not fail on its letters
    app()
