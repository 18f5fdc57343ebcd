"""What a client is told when a request cannot be answered, in OpenAI's form."""

from typing import Any


class ApiError(Exception):
    """A refused request: its HTTP status and the body OpenAI's clients expect."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code

    @property
    def body(self) -> dict[str, Any]:
        kind = "server_error" if self.status >= 500 else "invalid_request_error"  # noqa: PLR2004 (HTTP)
        return {
            "error": {
                "message": self.message,
                "type": kind,
                "param": self.param,
                "code": self.code,
            }
        }


class Overloaded(Exception):  # noqa: N818 (a state of the engine, not its mistake)
    """The engine's queue is full. Crosses from the engine's process to the ingress."""
