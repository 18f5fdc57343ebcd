"""A cloud for the tests: both stand-ins in this process, and what the engine needs to reach them.

Pulumi attaches to a provider that already runs if PULUMI_DEBUG_PROVIDERS says where: so no
provider starts for each command, and a test sees what was made.
"""

from concurrent import futures
from typing import Self

import grpc
from pulumi.runtime.proto import provider_pb2_grpc

from tests.standin.api import Api
from tests.standin.gcp import GoogleCloud
from tests.standin.kubernetes import Kubernetes
from tests.standin.provider import Provider

_THREADS = 16


class Cloud:
    """An empty project of Google's, and the API servers of its clusters."""

    def __init__(self) -> None:
        self.google = GoogleCloud()
        self.kubernetes = Kubernetes(self.google)
        self._servers = [_Server(self.google), _Server(self.kubernetes)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.grpc.stop(grace=None)

    @property
    def environ(self) -> dict[str, str]:
        google, kubernetes = (server.port for server in self._servers)
        return {"PULUMI_DEBUG_PROVIDERS": f"gcp:{google},kubernetes:{kubernetes}"}


class _Server:
    def __init__(self, api: Api) -> None:
        self.grpc = grpc.server(futures.ThreadPoolExecutor(_THREADS))
        provider_pb2_grpc.add_ResourceProviderServicer_to_server(Provider(api), self.grpc)
        self.port = self.grpc.add_insecure_port("127.0.0.1:0")
        self.grpc.start()
