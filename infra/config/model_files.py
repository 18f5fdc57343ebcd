"""A model's own `config.json`, read where the model lies: a folder, a bucket or the hub.

Asking a bucket or the hub takes a network and may take credentials, so it is done only where a
user waits for an answer about a stack, with a limit; without an answer the model's sizes are not
known, which is no fault of the stack.
"""

import functools
import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import httpx
from google.auth.exceptions import GoogleAuthError

from infra.config.model_facts import ModelFacts, UncountedError, known, of_config
from infra.config.models import DataSpec, Folder, Hub
from infra.config.parse import is_mapping

LIMIT_S = 10.0
"""For one answer."""

CONFIG, TOKENIZER = "config.json", "tokenizer.json"
_HUB = "https://huggingface.co"
_STORAGE = "https://storage.googleapis.com"
_READ = "https://www.googleapis.com/auth/devstorage.read_only"


def facts(origin: Folder | Hub, *, online: bool) -> ModelFacts:
    """Raises UncountedError if the model's sizes cannot be known here."""
    match origin:
        case Folder(path=path) if "://" not in path:
            return of_config(_of_folder(path))
        case Hub(hub=name) if sizes := known(name):
            return sizes
        case _ if not online:
            raise UncountedError(f"its {CONFIG} is not here")
        case Hub(hub=name):
            answer = ask(_of_hub, name)
        case Folder(path=path):
            answer = ask(_of_bucket, path)
    if isinstance(answer, UncountedError):
        raise answer
    return answer


def vocabulary(data: DataSpec) -> int:
    """Tokens of a corpus; 0 if they are not known here."""
    if data.tokenizer is None:
        return data.vocab_size
    if "://" in data.tokenizer.path:
        return 0
    try:
        raw = json.loads((Path(data.tokenizer.path) / TOKENIZER).read_bytes())
        added = [token["id"] for token in raw["added_tokens"]]
        return 1 + max([*raw["model"]["vocab"].values(), *added])
    except (OSError, ValueError, LookupError, TypeError):
        return 0


@functools.cache
def ask(read: Callable[[str], Mapping[str, Any]], place: str) -> ModelFacts | UncountedError:
    """What the bucket or the hub answers, or why nothing is known. Each is asked once."""
    try:
        return of_config(read(place))
    except UncountedError as error:
        return error


def _of_folder(path: str) -> Mapping[str, Any]:
    try:
        return _parsed((Path(path) / CONFIG).read_bytes())
    except OSError as error:
        raise UncountedError(f"its {CONFIG} cannot be read: {error.strerror}") from None


def _of_hub(name: str) -> Mapping[str, Any]:
    # Address and token are set as for Hugging Face's own library.
    endpoint = os.environ.get("HF_ENDPOINT", _HUB).rstrip("/")
    token = os.environ.get("HF_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"{endpoint}/{name}/resolve/main/{CONFIG}"
    try:
        answer = httpx.get(url, headers=headers, timeout=LIMIT_S, follow_redirects=True)
    except httpx.HTTPError:
        raise UncountedError("the hub gives no answer") from None
    if not answer.is_success:
        raise UncountedError(f"the hub answers {answer.status_code}")
    return _parsed(answer.content)


def _of_bucket(path: str) -> Mapping[str, Any]:
    """In a thread: a search for credentials may take longer than anybody waits."""
    pool = ThreadPoolExecutor(1)
    try:
        answer = pool.submit(_asked_of_storage, path).result(LIMIT_S)
    except (TimeoutError, httpx.HTTPError):
        raise UncountedError("its bucket gives no answer") from None
    except GoogleAuthError:
        raise UncountedError("there are no credentials for its bucket") from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    if not answer.is_success:
        raise UncountedError(f"its bucket answers {answer.status_code}")
    return _parsed(answer.content)


def _asked_of_storage(path: str) -> httpx.Response:
    # Not gcsfs: what it imports cannot be in one process with Pulumi's messages.
    bucket, _, folder = path.removeprefix("gs://").partition("/")
    name = quote(f"{folder.strip('/')}/{CONFIG}".lstrip("/"), safe="")
    emulator = os.environ.get("STORAGE_EMULATOR_HOST")
    headers = {} if emulator else {"Authorization": f"Bearer {_token()}"}
    url = f"{(emulator or _STORAGE).rstrip('/')}/download/storage/v1/b/{bucket}/o/{name}?alt=media"
    return httpx.get(url, headers=headers, timeout=LIMIT_S)


def _token() -> str:
    """Raises GoogleAuthError."""
    import google.auth  # here: it takes a second
    from google.auth.transport.requests import Request

    credentials, _ = google.auth.default(scopes=[_READ])  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] # untyped
    credentials.refresh(Request())  # pyright: ignore[reportUnknownMemberType] # untyped
    return cast("str", credentials.token)  # pyright: ignore[reportUnknownMemberType] # untyped


def _parsed(content: bytes) -> Mapping[str, Any]:
    try:
        raw = json.loads(content)
    except ValueError:
        raise UncountedError(f"its {CONFIG} is not JSON") from None
    if not is_mapping(raw):
        raise UncountedError(f"its {CONFIG} is no JSON object")
    return raw
