"""Errors that are the user's to mend: where, what, and the way out, each in one line."""

from collections.abc import Iterable


class UserError(Exception):
    """All faults of an input, reported together: one line each."""

    def __init__(self, *faults: str) -> None:
        self.faults = faults
        super().__init__("\n".join(self.faults))

    def __reduce__(self) -> tuple[type["UserError"], tuple[str, ...]]:
        return UserError, self.faults  # it travels from a worker to the driver


def explain(error: BaseException) -> tuple[str, ...]:
    """The lines of `error` that help: a UserError inside it, or else its type and last line."""
    for inner in _chain(error):
        if isinstance(inner, UserError):
            return inner.faults
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    last = lines[-1] if lines else "no message"
    # Ray's errors are texts of a remote traceback; the last line names the remote error's type.
    return (last if len(lines) > 1 else f"{type(error).__name__}: {last}",)


def _chain(error: BaseException) -> Iterable[BaseException]:
    """`error` and what it wraps: Ray keeps a remote error in `cause`."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        inner = getattr(seen, "cause", None) or seen.__cause__
        seen = inner if isinstance(inner, BaseException) and inner is not seen else None
