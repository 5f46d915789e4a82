"""`Refusal`: why a request gets no answer, as a status and in OpenAI's form."""

from typing import Any

__all__ = ["Refusal", "failed", "not_ready", "stopping"]


class Refusal(Exception):  # noqa: N818 - it is an answer, not a failure of the program
    """A request that is not answered, or not to its end.

    Parameters
    ----------
    status : int
        The HTTP status, where the answer has not begun.
    message : str
        For the client: it names neither paths nor code.
    kind : str
        OpenAI's ``type``.
    param, code : str or None
        The field at fault, and a fixed word for programs.
    retry_after : int or None
        Seconds after which the same request may succeed.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.kind = status, message, kind
        self.param, self.code, self.retry_after = param, code, retry_after

    @property
    def body(self) -> dict[str, Any]:
        """The error as OpenAI's clients expect it."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    @property
    def headers(self) -> dict[str, str]:
        """The headers that belong to it."""
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}


def failed() -> Refusal:
    """Return the refusal of a request in which something broke."""
    return Refusal(500, "The server failed to answer this request; its log says why.", kind="server_error")


def not_ready() -> Refusal:
    """Return the refusal of a request that came before the model was loaded."""
    message = "The model is still being loaded."
    return Refusal(503, message, kind="server_error", code="loading", retry_after=2)


def stopping() -> Refusal:
    """Return the refusal of a request that came, or still ran, when the server was stopped."""
    message = "The server is shutting down."
    return Refusal(503, message, kind="server_error", code="server_shutdown", retry_after=5)
