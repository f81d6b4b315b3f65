"""What the numbers depend on besides the suites: packages, machine, libraries, variables, git. Without names of hosts, users or folders.

`installed`, `variables` and `git_state` are cheap; environment.smk calls them at every start, so that a change reruns the job.
"""

import hashlib
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

VARIABLES = (  # these change last bits; Snakemake itself sets the first four in each job, to the threads of its rule
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "OPENBLAS_CORETYPE",
    "MKL_CBWR",
    "MKL_DEBUG_CPU_TYPE",
    "MKL_ENABLE_INSTRUCTIONS",
    "ONEDNN_MAX_CPU_ISA",
    "ATEN_CPU_CAPABILITY",
    "NPY_DISABLE_CPU_FEATURES",
    "NPY_ENABLE_CPU_FEATURES",
    "GLIBC_TUNABLES",
)
PATHS = re.compile(r"""(?:(?<!\w)|(?<=-[IL]))(?:[A-Za-z]:)?[\\/][^\s,;'"]+""")


def installed() -> list[str]:
    """Python and every installed package, each with its version, from the names of the packages' metadata folders."""
    folders = [Path(folder) for folder in sys.path if os.path.isdir(folder)]
    metadata = {name for folder in folders for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info"))}
    return [f"python-{platform.python_version()}", *sorted(metadata)]


def digest(words: list[str]) -> str:
    """The first digits of the SHA-256 of `words`; Snakemake prints them as the reason for a run, where all packages would fill a page."""
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:12]


def variables() -> list[str]:
    """The VARIABLES that are set, as NAME=value."""
    return [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]


def git_state(root: Path) -> dict:
    """{commit, code_dirty} of the checkout at `root`; both None if it is none, or if there is no git.

    code_dirty: whether a file that git knows differs from the commit, or workflow/ has one that git does not know; suites and config do not
    count, for an archive says which of them do.
    """
    unknown = {"commit": None, "code_dirty": None}
    if not (root / ".git").exists():
        return unknown
    command = [
        "git",
        "--no-optional-locks",
        "status",
        "--porcelain=v2",
        "--branch",
        "--untracked-files=normal",
        "--",
        ".",
        ":(exclude)config",
    ]
    try:
        said = subprocess.run(command, cwd=root, capture_output=True, check=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        return unknown
    lines = said.decode("utf-8", "replace").splitlines()
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), None)
    return {
        "commit": None if commit == "(initial)" else commit,
        "code_dirty": any(line[0] not in "#?" or line.startswith("? workflow/") for line in lines),
    }


def describe(git: dict, lock: Path, loaded: dict) -> dict:
    """Everything of environment.json. git: from `git_state`; lock: the pinned requirements; loaded: from `libraries`."""
    facts = {
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "compiler": platform.python_compiler(),
        },
        "packages": _packages(),
        "system": {
            "name": platform.system(),
            "release": platform.release(),
            "machine": platform.machine(),
            "libc": " ".join(platform.libc_ver()).strip(),
        },
        "cpu": _cpu(),
        "numpy": _numpy(),
        **loaded,
        "variables": {name: os.environ.get(name) for name in VARIABLES},
        "git": git,
        "lock": {"file": lock.name, "sha256": hashlib.sha256(lock.read_bytes()).hexdigest()},
    }
    return without_paths(facts)


def libraries() -> dict:
    """{thread_pools, torch, modes}: what the libraries that compute say of themselves once they are loaded."""
    import numpy  # noqa: F401  both are loaded first, so that threadpoolctl sees their libraries
    import threadpoolctl
    import torch

    return {
        "thread_pools": sorted(threadpoolctl.threadpool_info(), key=lambda pool: (pool["user_api"], pool["prefix"], pool["filepath"])),
        "torch": {
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "config": _lines(torch.__config__.show()),
            "parallel": _lines(torch.__config__.parallel_info()),
        },
        "modes": _modes(),
    }


def without_paths(value):
    """`value`, nested or not, with every absolute path in a text cut down to its last part."""
    if isinstance(value, dict):
        return {key: without_paths(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_paths(item) for item in value]
    return PATHS.sub(lambda path: re.split(r"[\\/]", path[0].rstrip("\\/"))[-1], value) if isinstance(value, str) else value


def _packages() -> dict[str, str]:
    """Version of every installed package, by name."""
    told = [package.metadata for package in importlib.metadata.distributions()]  # once each: to read them is most of what this costs
    found = {package["Name"]: package["Version"] for package in reversed(told)}  # of two, the one that is imported stands first
    return {name: found[name] for name in sorted(found, key=str.lower)}


def _cpu() -> dict:
    """{model, flags, logical}: of the first processor as Linux tells it; elsewhere what Python knows."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace").split("\n\n")[0]
    except OSError:
        text = ""
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    flags = fields.get("flags", fields.get("Features", ""))
    return {"model": fields.get("model name", platform.processor()), "flags": sorted(flags.split()), "logical": os.cpu_count()}


def _numpy() -> dict:
    """NumPy's build without the folders it was built in, and the SIMD extensions that it uses here."""
    import numpy as np

    build = np.show_config(mode="dicts")
    libraries = {
        name: {key: text for key, text in library.items() if "directory" not in key}
        for name, library in build["Build Dependencies"].items()
    }
    compilers = {name: {key: compiler[key] for key in ("name", "version")} for name, compiler in build["Compilers"].items()}
    return {
        "compilers": compilers,
        "libraries": libraries,
        "machine": build["Machine Information"],
        "simd": build["SIMD Extensions"],
    }


def _modes() -> dict:
    """Settings that change bits: as this process has them, and as the jobs have them, for none of them sets any."""
    import numpy as np
    import torch

    tiny = np.array([5e-324])
    return {
        "torch_deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "torch_float32_matmul_precision": torch.get_float32_matmul_precision(),
        "torch_default_dtype": str(torch.get_default_dtype()),
        "torch_mkldnn": torch.backends.mkldnn.enabled,
        "torch_flushes_denormals": bool((torch.from_numpy(tiny) * 1.0 == 0).item()),
        "numpy_flushes_denormals": bool((tiny * 1.0 == 0)[0]),
    }


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]
