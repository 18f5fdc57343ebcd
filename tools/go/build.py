"""Provides programs: those on PATH, or built from Go modules into .tools/go.

    python -m tools.go.build pulumi | cluster | provider ...

A build is kept until the sources in its folder of tools/go or these scripts change, and appears
under its final name only when complete.
"""

import argparse
import contextlib
import fcntl
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.go.compiler import BuildError, Compiler, console, last_line
from tools.go.targets import TARGETS, Target, folder

SOURCES = Path(__file__).parent
OLDEST_PULUMI = (3, 220)
VERSION_LIMIT_S = 60
LOCK_LIMIT_S = 3600


def installed(program: str, root: Path) -> Path | None:
    """The user's own program, if there is one on PATH: not what the project at `root` built."""
    if any(program in target.pinned for target in TARGETS.values()):
        return None
    own = [root / ".venv", root / ".tools"]
    folders = [
        one
        for one in os.environ.get("PATH", os.defpath).split(os.pathsep)
        if not any(Path(one).is_relative_to(ours) for ours in own)
    ]
    found = shutil.which(program, path=os.pathsep.join(folders))
    return Path(found) if found else _plugin(program)


def _plugin(program: str) -> Path | None:
    """A provider that the user's Pulumi has installed, of the version that the SDK asks for."""
    kind = program.removeprefix("pulumi-resource-")
    if kind == program:
        return None
    home = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")
    version = importlib.metadata.version(f"pulumi-{kind}")
    plugin = home / f"plugins/resource-{kind}-v{version}" / program
    return plugin if plugin.is_file() else None


def find(program: str, root: Path) -> Path:
    """Where a program is: the user's own first. Raises BuildError if it was not built yet."""
    if own := installed(program, root):
        return own
    target = next(name for name, one in TARGETS.items() if program in one.programs)
    built = folder(root, target) / program
    if not built.is_file():
        raise BuildError(f"there is no `{program}`; run `python -m tools.go.build {target}`")
    return built


def check_pulumi(cli: Path) -> None:
    """Raises BuildError if the user's own CLI is broken or too old."""
    way_out = "update it, or take it off PATH and `make setup` builds one"
    try:
        done = subprocess.run(
            [cli, "version"], capture_output=True, text=True, timeout=VERSION_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{cli} does not run ({error}); {way_out}") from None
    found = re.search(r"v?(\d+)\.(\d+)\.\d+\S*", done.stdout)
    if done.returncode or not found:
        raise BuildError(f"`{cli} version` failed ({last_line(done.stderr)}); {way_out}")
    if (int(found[1]), int(found[2])) < OLDEST_PULUMI:
        wanted = ".".join(str(part) for part in OLDEST_PULUMI)
        raise BuildError(f"{cli} is Pulumi {found[0]}, older than {wanted}; {way_out}")


def key(target: str) -> str:
    """Changes when the build would."""
    digest = hashlib.sha256()
    files = [*SOURCES.glob("*.py"), *(SOURCES / target).rglob("*")]
    for file in sorted(one for one in files if one.is_file()):
        digest.update(f"{file.relative_to(SOURCES)}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def is_built(final: Path, programs: Sequence[str]) -> bool:
    stamp = final / "key"
    return (
        stamp.is_file()
        and stamp.read_text() == key(final.name)
        and all((final / program).is_file() for program in programs)
    )


@contextlib.contextmanager
def only_one(final: Path) -> Iterator[None]:
    """Holds off other builds of this checkout; the lock goes with the process, however it ends."""
    final.parent.mkdir(parents=True, exist_ok=True)
    deadline_s = time.monotonic() + LOCK_LIMIT_S
    with final.with_suffix(".lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline_s:
                    raise BuildError(
                        f"another build holds {lock.name} for over {LOCK_LIMIT_S} s; end it"
                    ) from None
                time.sleep(1)
        yield


def fill(into: Path, compiler: Compiler, programs: Sequence[str]) -> None:
    """Puts the programs, and what they need beside them, into an empty folder."""
    target = compiler.target
    compiler.build(programs, into)
    for module, name in target.copies:
        source, copy = compiler.module(module) / name, into / Path(name).name
        if source.is_dir():  # modules are read-only, folders too, and those could not be removed
            shutil.copytree(source, copy, copy_function=shutil.copyfile)
            for inner in (copy, *(one for one in copy.rglob("*") if one.is_dir())):
                inner.chmod(0o755)
        else:
            shutil.copyfile(source, copy)
            copy.chmod(0o755)
    for name, text in target.scripts.items():
        script = into / name
        script.write_text(text)
        script.chmod(0o755)


def build(name: str, target: Target, programs: Sequence[str], root: Path) -> None:
    """Makes a target's folder in .tools/go of `root` unless it is there. Raises BuildError."""
    final = folder(root, name)
    with only_one(final):
        if is_built(final, programs):
            return
        compiler = Compiler(SOURCES / name, target)
        compiler.check(programs)
        partial = final.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        start_s = time.monotonic()
        fill(partial, compiler, programs)
        (partial / "key").write_text(key(name))
        shutil.rmtree(final, ignore_errors=True)
        partial.rename(final)
        console.print(f"Built {target.title} in {time.monotonic() - start_s:.0f} s")


def provide(name: str, root: Path) -> None:
    """Builds what the user does not have of a target. Raises BuildError."""
    target = TARGETS[name]
    own = {program: path for program in target.programs if (path := installed(program, root))}
    if "pulumi" in own:
        check_pulumi(own["pulumi"])
    missing = [program for program in target.programs if program not in own]
    if missing:
        build(name, target, missing, root)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools.go.build", description="Builds what is missing.")
    parser.add_argument("target", nargs="+", choices=TARGETS)
    for name in parser.parse_args().target:
        try:
            provide(name, SOURCES.parents[1])
        except BuildError as error:
            sys.stderr.write(f"{name}: {error}\n")
            return 1
        except KeyboardInterrupt:
            return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
