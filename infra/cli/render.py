"""What `raytpu render` shows: all that a stack would make, without engine, credentials or network.

The same pure functions decide it that the Pulumi program calls. So what is reviewed here is what
`pulumi up` makes, but for what only Google knows, which is said, and for secrets, which are not
shown.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import SecretStr

from infra.cli.check import Report, cloud_faults
from infra.config import ExistingCluster, StackConfig
from infra.gke.args import Args
from infra.gke.plan import plan
from infra.ray.objects import objects

SECRET = "[secret]"  # noqa: S105 - what is shown in place of one
NOT_KNOWN = {"{project_number}": "the project's number"}
"""What stands in a rendering for what Google says when the stack is brought up."""

_CLOUD, _KUBERNETES = "cloud", "kubernetes"
_LINE_WIDTH = 100
_LOCAL = ("makes nothing in a cloud, only processes on this machine", "render another stack")


class RenderError(Exception):
    """A rendering that could not be written. One line that ends with the way out."""


@dataclass(frozen=True)
class Document:
    path: str
    """Below the stack's folder."""
    text: str


def show(reports: Sequence[Report], out: Path | None) -> int:
    """Prints or writes the renderings of all stacks, unless one is at fault; the exit code.

    Stdout is for documents alone. What else there is to say goes to stderr.
    """
    faults = [line for report in reports for line in cloud_faults(report, *_LOCAL)]
    for line in faults:
        _say(line)
    if faults:
        return max(1, *(report.exit_code for report in reports))
    try:
        for report in reports:
            if report.config:
                _show(report.file, report.config, out)
    except RenderError as error:
        _say(str(error))
        return 2
    return 0


def render(config: StackConfig) -> list[Document]:
    """Google's resources by type, then Kubernetes' objects one by one, as they are made."""
    return [*_cloud(config), *_kubernetes(config)]


def write(documents: list[Document], folder: Path) -> None:
    """Makes the folder hold exactly the documents: those of an earlier rendering go.

    Raises RenderError if it holds anything else, and leaves it as it is.
    """
    foreign = [path for path in folder.rglob("*") if not _is_rendering(path, folder)]
    if foreign:
        raise RenderError(f"{foreign[0]}: is no part of a rendering; name another folder")
    try:
        for old in folder.glob("*/*"):
            old.unlink()
        for document in documents:
            path = folder / document.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(document.text, encoding="utf-8")
        for part in folder.glob("*"):
            if not any(part.iterdir()):
                part.rmdir()
    except OSError as error:
        raise RenderError(
            f"{error.filename}: cannot be written ({error.strerror}); name another folder"
        ) from None


def _show(file: str, config: StackConfig, out: Path | None) -> None:
    documents = render(config)
    for line in _not_known(documents):
        _say(f"{file}: {line}")
    if out is None:
        _print(config.stack, documents)
    else:
        write(documents, out / config.stack)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _print(stack: str, documents: list[Document]) -> None:
    """As one stream of YAML, of which JSON is a part."""
    for document in documents:
        sys.stdout.write(f"# {stack}/{document.path}\n{document.text}---\n")


def _not_known(documents: list[Document]) -> Iterator[str]:
    for sign, what in NOT_KNOWN.items():
        if any(sign in document.text for document in documents):
            yield f"{sign} stands for {what}, which is known at `pulumi up`"


def _is_rendering(path: Path, folder: Path) -> bool:
    match path.relative_to(folder).parts:
        case [part]:
            return path.is_dir() and part in (_CLOUD, _KUBERNETES)
        case [part, name]:
            suffix = ".json" if part == _CLOUD else ".yaml"
            return path.is_file() and name.endswith(suffix)
        case _:
            return False


def _cloud(config: StackConfig) -> Iterator[Document]:
    """A file for each class of the SDK, with the arguments of each of its resources."""
    if isinstance(config.cluster, ExistingCluster):
        return
    resources: dict[str, list[Args]] = {}
    for resource in plan(config).resources():
        resources.setdefault(resource.type, []).append(resource.args)
    for type_, args in resources.items():
        text = json.dumps(args, indent=2, default=_shown)
        yield Document(f"{_CLOUD}/{type_}.json", f"{text}\n")


def _kubernetes(config: StackConfig) -> Iterator[Document]:
    for one in objects(config):
        text = yaml.dump(  # pyright: ignore[reportUnknownMemberType] - half-typed stubs
            one.manifest, Dumper=_Dumper, sort_keys=False, width=_LINE_WIDTH
        )
        yield Document(f"{_KUBERNETES}/{one.key.replace('/', '-').lower()}.yaml", text)


def _shown(value: Any) -> str:
    if isinstance(value, SecretStr):
        return SECRET
    raise TypeError(f"{type(value).__name__} is no value of an argument")


class _Dumper(yaml.CSafeDumper):
    """Text of several lines as it reads, and no anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's own hook
        return True


def _text(dumper: yaml.CSafeDumper, value: str) -> yaml.ScalarNode:
    return _scalar(dumper, value, "|" if "\n" in value else None)


def _secret(dumper: yaml.CSafeDumper, value: SecretStr) -> yaml.ScalarNode:
    return _scalar(dumper, _shown(value), None)


def _scalar(dumper: yaml.CSafeDumper, text: str, style: str | None) -> yaml.ScalarNode:
    tag = "tag:yaml.org,2002:str"
    return dumper.represent_scalar(  # pyright: ignore[reportUnknownMemberType] - as above
        tag, text, style
    )


_Dumper.add_representer(str, _text)
_Dumper.add_multi_representer(SecretStr, _secret)
