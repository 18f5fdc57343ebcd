"""The environment in which this project runs Pulumi.

What the user has chosen stays: an installed CLI, a backend, a passphrase. Only what is left open is
filled in: the CLI that tools/go made, and state in a folder of the project, without passphrase.
"""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import yaml

ROOT_VARIABLE = "RAYTPU_ROOT"
"""Names the project in every process that was started for it; heal.py finds leftovers by it."""
PLAIN_CREDENTIALS = {"version", "credentialHelper", "current", "accessTokens", "accounts"}


def built_cli(root: Path) -> Path:
    """The folder of the CLI that tools/go makes."""
    return root / ".tools/go/pulumi"


def built_provider(root: Path) -> Path:
    """The folder of the provider for Kubernetes that tools/go makes."""
    return root / ".tools/go/provider"


def state(root: Path) -> Path:
    """The folder of the project's own backend."""
    return root / ".raytpu/state"


def backend(root: Path) -> str:
    """The address of the project's own backend."""
    return f"file://{state(root)}"


def installed_cli(environ: Mapping[str, str], root: Path) -> str | None:
    """The user's own `pulumi` on PATH, if there is one."""
    return shutil.which("pulumi", path=os.pathsep.join(_users_path(environ, root)))


def resolve(environ: Mapping[str, str], root: Path) -> dict[str, str]:
    """`environ` completed for the project at `root`; may be applied to its own result."""
    path = [str(root / ".venv/bin"), *_users_path(environ, root)]
    resolved = {"PULUMI_SKIP_UPDATE_CHECK": "1", **environ, ROOT_VARIABLE: str(root)}
    if installed_cli(environ, root) is None:
        # A provider on PATH is used as it is; the user's own comes first.
        path = [path[0], str(built_cli(root)), *path[1:], str(built_provider(root))]
        # It comes without installers for plugins, and downloads need a network.
        resolved["PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION"] = "1"
    resolved["PATH"] = os.pathsep.join(path)
    # `toolchain: uv` looks for .venv beside the program, which is in a folder of the project.
    resolved.setdefault("PULUMI_RUNTIME_VIRTUALENV", str(root / ".venv"))
    if not environ.get("PULUMI_BACKEND_URL") and not _has_backend(environ, root):
        resolved["PULUMI_BACKEND_URL"] = backend(root)
    own_backend = resolved.get("PULUMI_BACKEND_URL") == backend(root)
    if own_backend and not environ.get("PULUMI_CONFIG_PASSPHRASE_FILE"):
        resolved.setdefault("PULUMI_CONFIG_PASSPHRASE", "")
    return resolved


def _users_path(environ: Mapping[str, str], root: Path) -> list[str]:
    own = {str(one) for one in (root / ".venv/bin", built_cli(root), built_provider(root))}
    folders = environ.get("PATH", os.defpath).split(os.pathsep)
    return [folder for folder in folders if folder not in own]


def _has_backend(environ: Mapping[str, str], root: Path) -> bool:
    """Whether Pulumi finds a backend without PULUMI_BACKEND_URL."""
    return bool(environ.get("PULUMI_ACCESS_TOKEN")) or _declared(root) or _logged_in(environ)


def _declared(root: Path) -> bool:
    """Whether Pulumi.yaml names a backend."""
    project = root / "Pulumi.yaml"
    text = project.read_text() if project.is_file() else ""
    return bool(((yaml.safe_load(text) or {}).get("backend") or {}).get("url"))


def _logged_in(environ: Mapping[str, str]) -> bool:
    """Whether `pulumi login` has chosen a backend; yes if the file is not readable (encrypted)."""
    default = Path(environ.get("HOME") or Path.home()) / ".pulumi"
    folder = environ.get("PULUMI_CREDENTIALS_PATH") or environ.get("PULUMI_HOME") or default
    try:
        credentials = json.loads(Path(folder, "credentials.json").read_text())
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True
    return bool(credentials.get("current")) or not credentials.keys() <= PLAIN_CREDENTIALS
