"""How two environments differ, and which of the differences is the likeliest cause of other bits."""

from collections.abc import Callable

from worked_attention.pages.language import N_

CODE = N_("the workflow's code")
APART = ("numpy", "ml_dtypes", "torch")  # packages that compute


def _at(*keys: str) -> Callable[[dict], object]:
    """A getter of what environment.json says there; None where it says nothing."""

    def get(environment: dict) -> object:
        said: object = environment
        for key in keys:
            said = said.get(key) if isinstance(said, dict) else None
        return said

    return get


def _blas(key: str) -> Callable[[dict], object]:
    """A getter of what the BLAS of NumPy says of itself once it is loaded."""

    def get(environment: dict) -> object:
        pools = environment.get("thread_pools")
        return (
            sorted(str(p.get(key)) for p in pools if isinstance(p, dict) and p.get("user_api") == "blas")
            if isinstance(pools, list)
            else None
        )

    return get


def _packages(environment: dict) -> object:
    """All packages but those that have an entry of their own."""
    said = environment.get("packages")
    return {name: version for name, version in said.items() if name not in APART} if isinstance(said, dict) else None


def _code(environment: dict) -> object:
    commit, dirty = _at("git", "commit")(environment), _at("git", "code_dirty")(environment)
    return commit and f"{str(commit)[:12]}{' with changes' if dirty else ''}"


CAUSES: dict[str, Callable[[dict], object]] = {  # the likeliest first: what chooses the order of sums, then what computes, then the rest
    N_("BLAS kernels"): _blas("architecture"),
    N_("SIMD extensions that NumPy uses"): _at("numpy", "simd"),
    N_("BLAS library"): _blas("version"),
    "NumPy": _at("packages", "numpy"),
    N_("variables that change last bits"): _at("variables"),
    N_("threads of the BLAS"): _blas("num_threads"),
    N_("ml_dtypes (bfloat16)"): _at("packages", "ml_dtypes"),
    N_("C library"): _at("system", "libc"),
    CODE: _code,
    "Python": _at("python", "version"),
    N_("architecture of the machine"): _at("system", "machine"),
    N_("torch (only seeded draws of torch)"): _at("packages", "torch"),
    N_("processor"): _at("cpu", "model"),
    N_("other packages"): _packages,
}
KNOWN = {("thread_pools",), ("numpy", "simd"), ("variables",), ("packages",)}
KNOWN |= {("system", "libc"), ("system", "machine"), ("git",), ("python", "version"), ("cpu", "model"), ("format",)}


def differences(one: dict, other: dict, beyond: bool) -> list[tuple[str, str, str]]:
    """(what, in one, in the other) of two environment.json, the likeliest cause first; what is in no table stands last.

    beyond: whether an array differs by more than rounding can make; then the code comes first.
    """
    found = [(name, get(one), get(other)) for name, get in CAUSES.items()]
    found.sort(key=lambda cause: cause[0] != CODE if beyond else False)
    rest = sorted(_leaves(one, ()) | _leaves(other, ()))
    found += [(".".join(path), _at(*path)(one), _at(*path)(other)) for path in rest]
    return [(name, *_told(a, b)) for name, a, b in found if a != b]


def _leaves(said: object, path: tuple[str, ...]) -> set[tuple[str, ...]]:
    """The paths of everything that is said, but for what CAUSES look at."""
    if path in KNOWN:
        return set()
    if not isinstance(said, dict) or len(path) > 5:
        return {path} if path else set()
    return {leaf for key, value in said.items() for leaf in _leaves(value, (*path, key))}


def _told(a: object, b: object) -> tuple[str, str]:
    """Two values as text; of mappings and lists only what differs."""
    if isinstance(a, dict) and isinstance(b, dict):
        keys = [key for key in sorted({*a, *b}) if a.get(key) != b.get(key)]
        return tuple("; ".join(f"{key} {_text(side[key])}" for key in keys if key in side) or "-" for side in (a, b))
    if isinstance(a, list) and isinstance(b, list) and all(isinstance(x, str) for x in (*a, *b)) and set(a) != set(b):
        return tuple(", ".join(_text(x) for x in side if x not in other) or "-" for side, other in ((a, b), (b, a)))
    return _text(a), _text(b)


def _text(value: object) -> str:
    text = "-" if value in (None, []) else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 300 else f"{text[:299]}…"
