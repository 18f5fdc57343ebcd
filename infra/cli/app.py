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
    offline: Annotated[
        bool, typer.Option("--offline", help="Ask neither the hub nor a bucket about models.")
    ] = False,
) -> None:
    """Report all faults of stack files, and what their slices resolve to.

    The config.json of a model that vLLM is to serve is read where it lies; without an answer, what
    depends on it is called not checked.

    Exits with 0 if they are sound, 1 if one has faults, 2 if one could not be read.
    """
    from infra.cli import report
    from infra.cli.check import check as check_stack

    reports = [check_stack(stack, online=not offline) for stack in stacks]
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
def preflight(
    stacks: Annotated[
        list[str], typer.Argument(metavar="STACK", help="Names such as `dev`, or stack files.")
    ],
    *,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout-s", min=1, help="For each compilation.")
    ] = 1800.0,
) -> None:
    """Compile each step of training and of JAX serving for its slice, without a TPU.

    Exits with 0 if all fit, 1 if one does not or the stack has faults, 2 if one could not be read
    or compiled.
    """
    from infra.cli import preflight_report
    from infra.cli.preflight import preflight as judge

    outcomes = judge(stacks, timeout_s)
    if json:
        preflight_report.print_json(outcomes)
    else:
        preflight_report.print_text(outcomes)
    raise typer.Exit(max(one.exit_code for one in outcomes))


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


@app.command()
def new(  # noqa: PLR0913 - a flag for each question
    team: Annotated[str, typer.Argument(metavar="TEAM", help="Also the namespace.")],
    *,
    environment: Annotated[str | None, typer.Option(help="dev, staging, prod or another.")] = None,
    project: Annotated[str | None, typer.Option(help="Of Google Cloud.")] = None,
    cost_center: Annotated[str | None, typer.Option(help="By default the team.")] = None,
    workload: Annotated[str | None, typer.Option(help="serve, train or cluster.")] = None,
    machine_type: Annotated[str | None, typer.Option(help="Of a TPU host.")] = None,
    topology: Annotated[str | None, typer.Option(help="Of the slice.")] = None,
    zones: Annotated[str | None, typer.Option(help="Of one region, with commas.")] = None,
    capacity: Annotated[
        str | None, typer.Option(help="Most preferred first, with commas: spot,on_demand.")
    ] = None,
    reservation: Annotated[str | None, typer.Option(help="Its name, if there is one.")] = None,
    budget: Annotated[str | None, typer.Option(help="USD a month, or none.")] = None,
    force: Annotated[bool, typer.Option(help="Overwrite the file that is there.")] = False,
) -> None:
    """Write the stack file of a team: asks for what no flag says, and offers what is legal.

    Exits with 1, and writes nothing, if an answer is missing or wrong; 2 if there is no project.
    """
    from infra.cli.new import create

    given = {
        "environment": environment,
        "project": project,
        "cost-center": cost_center,
        "workload": workload,
        "machine-type": machine_type,
        "topology": topology,
        "zones": zones,
        "capacity": capacity,
        "reservation": reservation,
        "budget": budget,
    }
    flags = {flag: answer for flag, answer in given.items() if answer is not None}
    raise typer.Exit(create(team, flags, force=force))


@app.command()
def review(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE_OR_DIR", help="YAML of anybody's; - is the standard input."),
    ] = None,
    *,
    preview: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="What `pulumi preview --json` has written; or -."),
    ] = None,
    environment: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Whose rules hold. By default as it is labelled."),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Levels, limits and allowances; see docs/policies.md."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="A rule that could not be evaluated fails.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")] = False,
    sarif: Annotated[bool, typer.Option("--sarif", help="Print SARIF 2.1.0 instead.")] = False,
) -> None:
    """Judge Kubernetes YAML, renderings or previews by the rules of docs/policies.md.

    Exits with 0 if nothing mandatory is found, 1 if something is, 2 if something could not be read.
    """
    from infra.cli.review import Request
    from infra.cli.review import review as judge

    if not paths and not preview:
        raise typer.BadParameter("name files or folders, or --preview FILE")
    if json and sarif:
        raise typer.BadParameter("choose one of --json and --sarif")
    form = "sarif" if sarif else "json" if json else "text"
    request = Request(paths or [], preview or [], environment, settings, strict, form)
    raise typer.Exit(judge(request))


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a message must not fail on its letters
    app()
