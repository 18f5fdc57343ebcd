"""A model's own `config.json`, read where the model lies: a folder, a bucket or the hub.

Asking a bucket or the hub takes a network and may take credentials, so it is done only where a
user waits for an answer about a stack, with a limit; without an answer the model's sizes are not
known, which is no fault of the stack.
"""

import functools
import json
import os
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import httpx

from infra.config.model_facts import ModelFacts, UncountedError, known, of_config
from infra.config.models import Folder, Hub
from infra.config.parse import is_mapping

LIMIT_S = 10.0
"""For one answer."""

CONFIG = "config.json"
_HUB = "https://huggingface.co"


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Google's libraries speak of the next Python
        import gcsfs  # pyright: ignore[reportMissingTypeStubs] # has none. Here: it takes a second
    address = f"{path.rstrip('/')}/{CONFIG}"
    pool = ThreadPoolExecutor(1)
    try:
        read = pool.submit(lambda: gcsfs.GCSFileSystem().cat_file(address))  # pyright: ignore[reportUnknownMemberType, reportUnknownLambdaType] # untyped
        return _parsed(cast("bytes", read.result(LIMIT_S)))
    except TimeoutError:
        raise UncountedError(f"its bucket gives no answer within {LIMIT_S:.0f} s") from None
    except Exception as error:  # noqa: BLE001 # gcsfs, aiohttp and google.auth share no base
        raise UncountedError(f"its bucket cannot be read ({type(error).__name__})") from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _parsed(content: bytes) -> Mapping[str, Any]:
    try:
        raw = json.loads(content)
    except ValueError:
        raise UncountedError(f"its {CONFIG} is not JSON") from None
    if not is_mapping(raw):
        raise UncountedError(f"its {CONFIG} is no JSON object")
    return raw
