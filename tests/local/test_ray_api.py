"""What a dashboard may do to its client."""

import json
import threading
from collections.abc import Iterator
from http import HTTPStatus

import pytest
from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, serve

from infra.errors import LocalError
from infra.local.ray_api import RayApi

LINES = ("one\n", "two\n", "three\n", "four\n")


class Dashboard:
    """Serves a job's log from its start at each connection, and breaks off as it is told to."""

    def __init__(self, breaks_after: list[int]) -> None:
        self.breaks_after = breaks_after
        self.server: Server = serve(
            self._tail, "127.0.0.1", 0, process_request=self._answer, compression=None
        )
        self.url = f"http://127.0.0.1:{self.server.socket.getsockname()[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def _tail(self, connection: ServerConnection) -> None:
        for line in LINES[: self.breaks_after.pop(0)]:
            connection.send(line)

    def _answer(self, _connection: ServerConnection, request: Request) -> Response | None:
        if request.path.endswith("/logs/tail"):
            return None
        status = "RUNNING" if self.breaks_after else "SUCCEEDED"
        headers = Headers({"Content-Type": "application/json"})
        body = json.dumps({"status": status}).encode()
        return Response(HTTPStatus.OK, "OK", headers, body)


@pytest.fixture
def dashboard() -> Iterator[Dashboard]:
    made = Dashboard([2, 1, 4])
    yield made
    made.server.shutdown()


def test_a_log_whose_connection_breaks_is_told_once_and_whole(dashboard: Dashboard) -> None:
    chunks = RayApi(dashboard.url).job_log("job", 0.1)
    assert "".join(chunk for chunk in chunks if chunk) == "".join(LINES)
    assert dashboard.breaks_after == []


def test_a_dashboard_that_is_gone_is_one_line_with_the_way_out(dashboard: Dashboard) -> None:
    dashboard.server.shutdown()
    with pytest.raises(LocalError, match=rf"does not answer at {dashboard.url}: .*refresh") as told:
        RayApi(dashboard.url).job("job")
    assert "\n" not in str(told.value)


def test_a_wait_ends_at_its_limit_and_says_for_what(dashboard: Dashboard) -> None:
    with pytest.raises(LocalError, match="waited 0 s for the moon"):
        RayApi(dashboard.url).wait_for(lambda: False, 0.1, "the moon")
