# ruff: noqa: ARG002, N802 - the methods of Pulumi's protocol
"""A resource provider to which the real engine attaches: Pulumi's own protocol around an Api."""

from collections.abc import Iterable
from typing import NoReturn

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2

from tests.standin.api import Api, Args, Made, RefusedError, UnhealthyError
from tests.standin.wire import at, changes, leaves, plain, put, spelled, struct

_NONE = provider_pb2.DiffResponse.DIFF_NONE
_SOME = provider_pb2.DiffResponse.DIFF_SOME
_UPDATE = provider_pb2.PropertyDiff.UPDATE
_REPLACE = provider_pb2.PropertyDiff.UPDATE_REPLACE


class Provider(provider_pb2_grpc.ResourceProviderServicer):
    def __init__(self, api: Api) -> None:
        self.api = api

    def Handshake(self, request, context):
        return provider_pb2.ProviderHandshakeResponse()

    def Attach(self, request, context):
        return empty_pb2.Empty()

    def GetPluginInfo(self, request, context):
        return plugin_pb2.PluginInfo(version=self.api.version)

    def CheckConfig(self, request, context):
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request, context):
        return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)

    def Configure(self, request, context):
        self.api.configs[_stack(request.urn)] = plain(request.args)
        return provider_pb2.ConfigureResponse(supportsPreview=True)

    def Cancel(self, request, context):
        return empty_pb2.Empty()

    def Invoke(self, request, context):
        try:
            result = self.api.invoke(request.tok, plain(request.args))
        except RefusedError as refused:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(refused))
        response = provider_pb2.InvokeResponse()
        getattr(response, "return").CopyFrom(struct(result))  # its name is a keyword
        return response

    def Check(self, request, context):
        failures = [
            provider_pb2.CheckFailure(reason=reason)
            for reason in self.api.faults(_made(request, request.news))
        ]
        return provider_pb2.CheckResponse(inputs=request.news, failures=failures)

    def Diff(self, request, context):
        old, new, state = (plain(s) for s in (request.old_inputs, request.news, request.olds))
        drifted = [
            tuple(path.split("."))
            for path in self.api.drift(request.type)
            if at(new, path) is None and at(state, path) is not None
        ]
        ignored = tuple(request.ignoreChanges)
        changed = [p for p in [*changes(old, new), *drifted] if not _within(spelled(p), ignored)]
        replaced = [path for path in changed if self.api.replaces(request.type, path)]
        return provider_pb2.DiffResponse(
            changes=_SOME if changed else _NONE,
            diffs=sorted({path[0] for path in changed}),
            replaces=map(spelled, replaced),
            detailedDiff={
                spelled(path): provider_pb2.PropertyDiff(
                    kind=_REPLACE if path in replaced else _UPDATE
                )
                for path in changed
            },
            hasDetailedDiff=True,
            # Two resources of one name cannot be there at once.
            deleteBeforeReplace=bool(replaced)
            and self._id(request, request.old_inputs) == self._id(request, request.news),
        )

    def Create(self, request, context):
        if request.preview:
            return provider_pb2.CreateResponse(properties=request.properties)
        made = _made(request, request.properties)
        id_ = self.api.identify(made)
        if id_ in self.api.made:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, f"Already exists: {id_}")
        try:
            self.api.create(made)
        except RefusedError as refused:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(refused))
        except UnhealthyError as reason:
            self._keep("create", id_, made)
            _abort_half_done(context, id_, made, str(reason))
        self._keep("create", id_, made)
        return provider_pb2.CreateResponse(id=id_, properties=struct(made.state()))

    def Read(self, request, context):
        made = self.api.made.get(request.id)
        if made is None:
            return provider_pb2.ReadResponse()
        state = made.state()
        seen = {key: state.get(key, value) for key, value in made.args.items()}
        return provider_pb2.ReadResponse(
            id=request.id, properties=struct(state), inputs=struct(_only(seen, made.args))
        )

    def Update(self, request, context):
        args = plain(request.news)
        made = self.api.made[request.id]
        if request.preview:
            return provider_pb2.UpdateResponse(properties=struct({**made.state(), **args}))
        try:
            self.api.update(made, args)
        except RefusedError as refused:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(refused))
        except UnhealthyError as reason:
            _abort_half_done(context, request.id, made, str(reason))
        self.api.done.append(("update", request.id))
        return provider_pb2.UpdateResponse(properties=struct(made.state()))

    def Delete(self, request, context):
        if made := self.api.made.get(request.id):
            try:
                self.api.delete(made)
            except RefusedError as refused:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refused))
            del self.api.made[request.id]
            self.api.done.append(("delete", request.id))
        return empty_pb2.Empty()

    def _id(self, request, args) -> str:
        return self.api.identify(_made(request, args))

    def _keep(self, what: str, id_: str, made: Made) -> None:
        self.api.made[id_] = made
        self.api.done.append((what, id_))


def _stack(urn: str) -> str:
    return urn.removeprefix("urn:pulumi:").partition("::")[0]


def _made(request, args) -> Made:
    return Made(_stack(request.urn), request.type, plain(args))


def _within(path: str, outer: Iterable[str]) -> bool:
    return any(path == one or path.startswith((f"{one}.", f"{one}[")) for one in outer)


def _only(seen: Args, declared: Args) -> Args:
    """Of what is there, what the program declared: a provider reports no more as inputs."""
    inputs: Args = {}
    for path, value in leaves(declared):
        found = at(seen, path)
        put(inputs, path, value if found is None else found)
    return inputs


def _abort_half_done(context, id_: str, made: Made, reason: str) -> NoReturn:
    """The resource is kept in the state, with what is wrong with it."""
    code = grpc.StatusCode.UNKNOWN
    detail = provider_pb2.ErrorResourceInitFailed(
        id=id_,
        properties=struct(made.state()),
        inputs=struct(made.args),
        reasons=[reason],
    )
    status = status_pb2.Status(code=code.value[0], message=reason)
    status.details.add().Pack(detail)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(code, reason)
    raise AssertionError  # abort raises
