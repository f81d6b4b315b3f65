"""Where the workflow itself comes from: commit, its date, address, and its own files; without git, what the checkout holds."""

import re
import subprocess
import tarfile
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

CHECKOUT = (
    "Snakefile",
    "workflow",
    "config",
    "profiles",
    "envs",
    "CITATION.cff",
    "LICENSE",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
)
ADDRESS = re.compile(r"(https?|ssh|git)://(?:[^/@\s]*@)?([\w.-]+(?::\d+)?/\S+)|(?:\w+@)?([\w.-]+\.\w+):(?!/)(\S+)")
COMMITTED = ("%H", "%ct")


def committed(root: Path) -> tuple[str | None, str | None]:
    """The commit of the checkout at `root` and its date in UTC, as YYYY-MM-DDThh:mm:ss+00:00; both None without one, or without git."""
    said = _git(root, "show", "--no-patch", f"--format={' '.join(COMMITTED)}", "HEAD")
    if not said:
        return None, None
    commit, seconds = said.decode().split()
    return commit, datetime.fromtimestamp(int(seconds), UTC).isoformat()


def address(root: Path) -> str | None:
    """Where others find the repository of the checkout at `root`, without names and passwords; None where it comes from this machine."""
    told = ADDRESS.fullmatch((_git(root, "remote", "get-url", "origin") or b"").decode("utf-8", "replace").strip())
    if not told:
        return None
    scheme, place, host, path = told.groups()
    return f"{scheme}://{place}" if scheme else f"ssh://{host}/{path}"


def changed(root: Path, folder: str) -> list[str]:
    """The files in `folder` of the checkout that are not as committed, new ones included; none without git. Sorted."""
    said = _git(root, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", folder) or b""
    return sorted(entry[3:] for entry in said.decode("utf-8", "replace").split("\0") if entry)


def workflow_files(root: Path, as_committed: bool) -> dict[str, Path | bytes]:
    """The workflow's own files by name: as they are committed, or as they lie in the checkout at `root`."""
    packed = _git(root, "archive", "--format=tar", "HEAD") if as_committed else None
    if packed:
        with tarfile.open(fileobj=BytesIO(packed)) as tar:
            return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}
    found = [path for name in CHECKOUT for path in ([root / name] if (root / name).is_file() else (root / name).rglob("*"))]
    return {path.relative_to(root).as_posix(): path for path in found if path.is_file() and "__pycache__" not in path.parts}


def _git(root: Path, *words: str) -> bytes | None:
    """What git says in the checkout at `root`; None if that is none of its own, or if there is no git."""
    if not (root / ".git").exists():
        return None
    try:
        return subprocess.run(["git", "--no-optional-locks", *words], cwd=root, capture_output=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return None
