"""Pulumi's language host for Python: the process the engine asks to run programs and plugins.

Pulumi's own host is a Go program that no module proxy serves, so a CLI built from Go modules (see
build.py) comes without it. This one speaks the same protocol, with the SDK's protocol files. It
leaves out code generation, debuggers and the poetry toolchain. program_python.py says which Python
runs a program.
"""

# The methods' names and arguments are the protocol's.
# ruff: noqa: ARG002, N802

import argparse
import contextlib
import importlib.metadata
import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import IO, Any, cast

import grpc
from google.protobuf import empty_pb2
from google.protobuf.json_format import MessageToDict
from program_python import HostError, installed, program_python, required_packages
from pulumi.runtime.proto import (
    engine_pb2,
    engine_pb2_grpc,
    language_pb2,
    language_pb2_grpc,
    plugin_pb2,
)

BAIL_EXIT_CODE = 32
"""With it pulumi-language-python-exec says that it has shown the user an error already."""
STOP_GRACE_S = 3.0
"""From SIGTERM to SIGKILL. Below the 5 s the engine gives this host itself."""
ENGINE_CHECK_S = 1.0
MESSAGE_BYTES = 400 * 2**20
"""The engine's own limit for one message."""

Child = subprocess.Popen[bytes]


def stop(child: Child) -> None:
    """Ends `child`: asked first, killed after STOP_GRACE_S. Does nothing if it has ended."""
    child.terminate()
    try:
        child.wait(STOP_GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def output(child: Child) -> Iterator[tuple[str, bytes]]:
    """What `child` writes, as it comes, as ("stdout" or "stderr", bytes); ends with both pipes."""
    chunks: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()

    def pump(name: str, pipe: IO[bytes]) -> None:
        while chunk := os.read(pipe.fileno(), 65536):
            chunks.put((name, chunk))
        chunks.put((name, b""))

    pipes = {"stdout": child.stdout, "stderr": child.stderr}
    for name, pipe in pipes.items():
        threading.Thread(target=pump, args=(name, pipe), daemon=True).start()
    open_pipes = len(pipes)
    while open_pipes:
        name, chunk = chunks.get()
        if chunk:
            yield name, chunk
        else:
            open_pipes -= 1


class LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """Answers one engine."""

    def __init__(self, engine: str, executor: Path) -> None:
        """`executor` is the SDK's pulumi-language-python-exec, which runs a program."""
        self._engine = engine
        self._executor = executor
        self._children: set[Child] = set()

    def stop_children(self) -> None:
        for child in tuple(self._children):
            stop(child)

    @contextlib.contextmanager
    def _child(
        self,
        command: list[str | Path],
        context: grpc.ServicerContext,
        *,
        cwd: str | Path,
        environ: dict[str, str] | None = None,
        piped: bool = False,
    ) -> Iterator[Child]:
        """A child process that ends, at the latest, with the call that asked for it."""
        pipe = subprocess.PIPE if piped else None
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, cwd=cwd, env=environ
        )
        self._children.add(child)
        # False: the caller has gone already, so nobody would call back.
        if not context.add_callback(lambda: stop(child)):
            stop(child)
        try:
            yield child
        finally:
            stop(child)
            self._children.discard(child)

    def _show_error(self, message: str) -> None:
        with grpc.insecure_channel(self._engine) as channel:
            request = engine_pb2.LogRequest(severity=engine_pb2.ERROR, message=message)
            engine_pb2_grpc.EngineStub(channel).Log(request, timeout=10)

    def Handshake(self, request: language_pb2.LanguageHandshakeRequest, context: Any) -> Any:
        self._engine = request.engine_address or self._engine
        return language_pb2.LanguageHandshakeResponse()

    def GetPluginInfo(self, request: empty_pb2.Empty, context: Any) -> Any:
        return plugin_pb2.PluginInfo(version=importlib.metadata.version("pulumi"))

    def Cancel(self, request: empty_pb2.Empty, context: Any) -> Any:
        self.stop_children()
        return empty_pb2.Empty()

    def RuntimeOptionsPrompts(self, request: Any, context: Any) -> Any:
        return language_pb2.RuntimeOptionsResponse()  # `pulumi new` has nothing to ask

    def GetRequiredPackages(
        self, request: language_pb2.GetRequiredPackagesRequest, context: Any
    ) -> Any:
        site_packages = program_python(request.info).site_packages()
        return language_pb2.GetRequiredPackagesResponse(packages=required_packages(site_packages))

    def GetRequiredPlugins(
        self, request: language_pb2.GetRequiredPluginsRequest, context: Any
    ) -> Any:
        packages = required_packages(program_python(request.info).site_packages())
        fields = ("name", "kind", "version", "server")
        plugins = [
            plugin_pb2.PluginDependency(**{field: getattr(package, field) for field in fields})
            for package in packages
        ]
        return language_pb2.GetRequiredPluginsResponse(plugins=plugins)

    def About(self, request: language_pb2.AboutRequest, context: Any) -> Any:
        python = program_python(request.info)
        version = python.ask("import platform; print(platform.python_version())")
        return language_pb2.AboutResponse(executable=str(python.executable), version=version)

    def GetProgramDependencies(
        self, request: language_pb2.GetProgramDependenciesRequest, context: Any
    ) -> Any:
        site_packages = program_python(request.info).site_packages()
        found = installed(site_packages, transitive=request.transitiveDependencies)
        return language_pb2.GetProgramDependenciesResponse(dependencies=found)

    def InstallDependencies(
        self, request: language_pb2.InstallDependenciesRequest, context: grpc.ServicerContext
    ) -> Iterator[Any]:
        folder = Path(request.info.program_directory or request.directory)
        if MessageToDict(request.info.options).get("toolchain") == "uv":
            command: list[str | Path] = ["uv", "sync"]
        elif (folder / "requirements.txt").is_file():
            python = program_python(request.info).executable
            command = [python, "-m", "pip", "install", "--requirement", "requirements.txt"]
        else:
            return
        with self._child(command, context, cwd=folder, piped=True) as child:
            for name, chunk in output(child):
                yield language_pb2.InstallDependenciesResponse(**{name: chunk})
            if code := child.wait():
                tried = " ".join(str(word) for word in command)
                raise HostError(f"`{tried}` in {folder} failed with {code}; its output says why")

    def Run(self, request: language_pb2.RunRequest, context: grpc.ServicerContext) -> Any:
        try:
            python = program_python(request.info)
        except HostError as error:
            self._show_error(str(error))
            return language_pb2.RunResponse(bail=True)
        environ = python.environ(dict(os.environ))
        environ["PULUMI_CONFIG"] = json.dumps(dict(request.config))
        environ["PULUMI_CONFIG_SECRET_KEYS"] = json.dumps(list(request.configSecretKeys))
        command = [python.executable, "-u", self._executor, *self._arguments(request)]
        with self._child(command, context, cwd=request.pwd, environ=environ) as child:
            code = child.wait()
        if code == BAIL_EXIT_CODE:
            return language_pb2.RunResponse(bail=True)
        error = f"the program exited with code {code}" if code else ""
        return language_pb2.RunResponse(error=error)

    def _arguments(self, request: language_pb2.RunRequest) -> list[str]:
        """The command line of pulumi-language-python-exec."""
        options = {
            "monitor": request.monitor_address,
            "engine": self._engine,
            "project": request.project,
            "root_directory": request.info.root_directory,
            "stack": request.stack,
            "organization": request.organization,
            "pwd": request.pwd,
            "parallel": str(request.parallel),
            "dry_run": str(request.dryRun).lower(),
        }
        given = ([f"--{name}", value] for name, value in options.items() if value)
        program = Path(request.info.program_directory, request.info.entry_point)
        return [*itertools.chain.from_iterable(given), str(program), *request.args]

    def RunPlugin(
        self, request: language_pb2.RunPluginRequest, context: grpc.ServicerContext
    ) -> Iterator[Any]:
        python = program_python(request.info)
        given = dict(item.split("=", 1) for item in request.env) or dict(os.environ)
        program = Path(request.info.program_directory, request.info.entry_point)
        command = [python.executable, "-u", program, *request.args]
        environ = python.environ(given)
        with self._child(command, context, cwd=request.pwd, environ=environ, piped=True) as child:
            for name, chunk in output(child):
                yield language_pb2.RunPluginResponse(**cast("Any", {name: chunk}))
            yield language_pb2.RunPluginResponse(exitcode=child.wait())


class OneLineErrors(grpc.ServerInterceptor):
    """Turns a HostError of any method into the call's status, so the CLI shows it as it is."""

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = continuation(handler_call_details)
        if handler is None:
            return None

        def unary(request: Any, context: grpc.ServicerContext) -> Any:
            try:
                return handler.unary_unary(request, context)
            except HostError as error:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))

        def stream(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            try:
                yield from handler.unary_stream(request, context)
            except HostError as error:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))

        if handler.response_streaming:
            return handler._replace(unary_stream=stream)
        return handler._replace(unary_unary=unary)


def main(argv: list[str]) -> None:
    """Prints its port and serves until a signal comes or the engine, its parent, is gone."""
    parser = argparse.ArgumentParser(description="Pulumi language host for Python")
    parser.add_argument("--executor", type=Path, required=True)
    parser.add_argument("--parent", type=int, required=True, help="process id of the engine")
    parser.add_argument("--tracing", help="accepted and not used")
    parser.add_argument("engine", help="address of the engine")
    options, _logging_flags = parser.parse_known_args(argv)

    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    host = LanguageHost(options.engine, options.executor)
    limits = [(f"grpc.max_{way}_message_length", MESSAGE_BYTES) for way in ("receive", "send")]
    # Each program and plugin that runs holds a thread.
    pool = futures.ThreadPoolExecutor(max_workers=64)
    server = grpc.server(pool, interceptors=[OneLineErrors()], options=limits)
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)  # noqa: T201 - how the engine learns the port
    # A killed engine cannot say goodbye, and its program must not outlive it.
    while os.getppid() == options.parent and not stopping.wait(ENGINE_CHECK_S):
        pass
    host.stop_children()
    server.stop(grace=None).wait()


if __name__ == "__main__":
    main(sys.argv[1:])
