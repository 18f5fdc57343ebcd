"""StackConfig, and the way to it from what Pulumi hands its program.

A stack file is brought into the same form first (stackfile), so `raytpu check` and `pulumi up` walk
one path and say the same. Each entry is parsed by itself, so one at fault hides no other; rules
between entries see those that are sound.
"""

import json
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast

from pydantic import SecretStr

from infra.config import rules, secrets, vllm_rules
from infra.config.cluster import AnyCluster, AutopilotCluster, Cluster, Declared
from infra.config.entries import Entries
from infra.config.models import WORKLOADS, Images, Kind, Secret, ServeSpec, Team, Workload
from infra.config.parse import Scope, is_list, is_mapping, parse, unknown_key
from infra.errors import ConfigError, Problem
from infra.names import Name
from infra.tpu.slice import SliceSpec, TpuSlice, shape_faults
from workloads.settings import Settings

PREFIX = "raytpu:"


class Place(Settings):
    cluster: Declared


class Header(Settings):
    environment: Name
    cluster: Declared
    team: Team | None = None
    images: Images | None = None


class Token(Settings):
    hugging_face_token: Secret | None = None


KEYS = ("environment", "cluster", "team", "images", secrets.TOKEN, "slices", "workloads")


@dataclass(frozen=True)
class StackConfig:
    """A stack without fault: what it declares, resolved."""

    stack: str
    environment: str
    cluster: Cluster
    slices: tuple[TpuSlice, ...]
    workloads: tuple[Workload, ...]
    remarks: tuple[Problem, ...]
    """What is allowed and yet probably not meant."""
    fit: Mapping[str, str]
    """How a served model fills its slice, or why that is not known, by the workload's name."""
    team: Team | None = None
    images: Images | None = None
    hugging_face_token: SecretStr | None = None
    """For models of the hub that need one. From a file on disk: its ciphertext."""

    def slice(self, name: str) -> TpuSlice:
        return next(tpu for tpu in self.slices if tpu.name == name)

    def workload(self, name: str) -> Workload:
        return next(workload for workload in self.workloads if workload.name == name)


def load(
    config: Mapping[str, str],
    *,
    stack: str,
    secret_keys: Collection[str] = (),
    encrypted: bool = False,
    online: bool = False,
) -> StackConfig:
    """Raises ConfigError with all faults. No message quotes a value of a key that holds a secret.

    Args:
        config: Pulumi's configuration: full keys such as "raytpu:slices", structured values as
            JSON. Keys of other namespaces are left alone.
        stack: Name of the stack.
        secret_keys: Full keys of which the engine says that something in them is secret.
        encrypted: Whether values are as on disk, where a secret is {secure: ciphertext}. It is not
            decrypted.
        online: Whether buckets and the hub may be asked about models, which takes seconds.
    """
    raw = {
        key.removeprefix(PREFIX): _decoded(text)
        for key, text in config.items()
        if key.startswith(PREFIX)
    }
    marked = {key.removeprefix(PREFIX) for key in secret_keys} & {*raw}
    reader = _Reader(raw, None if encrypted else marked)
    header, token, cluster = reader.header(), reader.token(), reader.cluster()
    slices, workloads = reader.slices(cluster), reader.workloads()
    entries = Entries(slices, workloads, raw, reader.scope, stack, cluster, online)
    # Without a key that is wrongly secret, rules would miss what it declares.
    faults = [*reader.faults, *(() if reader.withheld else rules.faults(entries))]
    if header is None or faults:
        raise ConfigError(faults)
    return StackConfig(
        stack=stack,
        environment=header.environment,
        cluster=cast("Cluster", header.cluster),  # AnyCluster never parses
        slices=tuple(slices.values()),
        workloads=tuple(workloads.values()),
        remarks=tuple(rules.remarks(entries)),
        fit=vllm_rules.told(entries),
        team=header.team,
        images=header.images,
        hugging_face_token=token,
    )


def _decoded(text: str) -> Any:
    """A structured value as data; any other as the text it is."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if is_mapping(value) or is_list(value) else text


class _Reader:
    """Parses the parts of a stack, keyed by their places in the file, and keeps all faults."""

    def __init__(self, raw: dict[str, Any], marked: set[str] | None) -> None:
        """`marked`: keys the engine calls secret; None if values are as on disk."""
        self.raw = raw
        self.on_disk = marked is None
        sealed = {key: [*secrets.sealed_places(value, PREFIX + key)] for key, value in raw.items()}
        secret = {key for key in raw if sealed[key]} if marked is None else marked
        self.scope = Scope(hidden="workloads" in secret)
        self.secret_token = secrets.TOKEN in secret
        may = {"workloads", secrets.TOKEN}
        self.withheld = [PREFIX + key for key in KEYS if key in secret - may]
        in_workloads = sealed.get("workloads", []) if self.on_disk else []
        self.misplaced = [*secrets.misplaced([*self.withheld, *in_workloads])]
        unknown = [unknown_key(PREFIX + key, key, KEYS) for key in raw if key not in KEYS]
        self.faults = [*unknown, *self.misplaced]

    def header(self) -> Header | None:
        given = {key: self.raw[key] for key in Header.model_fields if key in self.raw}
        with self._kept():
            return parse(Header, given, PREFIX, Scope(hidden=False), "a stack")
        return None

    def cluster(self) -> Cluster | AnyCluster | None:
        """The header's, even if another key of that is at fault."""
        given = {"cluster": self.raw.get("cluster")}
        with suppress(ConfigError):
            return parse(Place, given, PREFIX, Scope(hidden=False), "a stack").cluster
        return None

    def token(self) -> SecretStr | None:
        where = PREFIX + secrets.TOKEN
        with self._kept():
            value = self._secret(self.raw.get(secrets.TOKEN), where, hidden=self.secret_token)
            given = {secrets.TOKEN: value}
            return parse(Token, given, PREFIX, Scope(hidden=True), "a stack").hugging_face_token
        return None

    def slices(self, cluster: Cluster | AnyCluster | None) -> dict[str, TpuSlice]:
        """Autopilot has no node pools, so what does not ask for them gets a compute class."""
        by_class = isinstance(cluster, AutopilotCluster)
        slices: dict[str, TpuSlice] = {}
        for where, entry in self._entries("slices"):
            with self._kept():
                slices[where] = self._slice(entry, where, by_class=by_class)
        return slices

    def _slice(self, entry: Any, where: str, *, by_class: bool) -> TpuSlice:
        try:
            spec = parse(SliceSpec, entry, where, Scope(hidden=False), "a slice")
        except ConfigError as error:
            more: list[Problem] = []
            match entry:
                case {"machine_type": str(machine_type), "topology": str(topology)}:
                    more = shape_faults(machine_type, topology, where)
                case _:
                    pass
            raise ConfigError([*error.problems, *more]) from None
        return TpuSlice.resolve(spec, where, by_class=by_class)

    def workloads(self) -> dict[str, Workload]:
        workloads: dict[str, Workload] = {}
        for where, entry in self._entries("workloads"):
            with self._kept():
                workloads[where] = self._workload(entry, where)
        return workloads

    def _workload(self, entry: Any, where: str) -> Workload:
        kind = entry.get("kind") if is_mapping(entry) else None
        model = WORKLOADS.get(kind) if isinstance(kind, str) else None
        if model is None:
            model = WORKLOADS[parse(Kind, entry, where, self.scope, "a workload").kind]
        if model is ServeSpec:
            for keys in secrets.IN_SERVE:
                entry = self._opened(entry, where, *keys)
        return parse(model, entry, where, self.scope, "a workload")

    def _opened(self, entry: Any, where: str, key: str, *inner: str) -> Any:
        """The entry with the secret under these keys, if there is one, as it is in this input."""
        value = entry.get(key) if is_mapping(entry) else None
        if value is None:
            return entry
        place = f"{where}.{key}"
        if inner:
            return {**entry, key: self._opened(value, place, *inner)}
        return {**entry, key: self._secret(value, place, hidden=self.scope.hidden)}

    def _secret(self, value: Any, where: str, *, hidden: bool) -> Any:
        """The value itself; None, and a fault, if it is in clear text on disk."""
        if self.on_disk and secrets.is_sealed(value):
            return value["secure"]
        if value is not None and (self.on_disk or not hidden):
            self.faults.append(secrets.in_clear_text(where))
            return None
        return value

    def _entries(self, key: str) -> Iterator[tuple[str, Any]]:
        where, value = f"{PREFIX}{key}", self.raw.get(key, [])
        if is_list(value):
            for index, entry in enumerate(value):
                yield f"{where}[{index}]", entry
            return
        fix = "begin each entry with '- name:'"
        with self._kept():
            raise ConfigError([self.scope.problem(where, value, "is not a list", fix)])

    @contextmanager
    def _kept(self) -> Generator[None]:
        """Keeps the faults of its block, but those that a misplaced secret causes."""
        try:
            yield
        except ConfigError as error:
            told = tuple(problem.where for problem in self.misplaced)
            self.faults += [new for new in error.problems if not new.where.startswith(told)]
