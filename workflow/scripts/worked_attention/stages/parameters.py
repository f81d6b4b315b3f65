"""Stage parameters: the arrays that a case starts from, read, filled or drawn by seed."""

from pathlib import Path

import numpy as np

from worked_attention.stages import precision  # noqa: F401  NumPy learns "bfloat16" from it
from worked_attention.stages.catalogue import BOOLEAN, WEIGHTS


def grid(shape: tuple[int, ...], a: int = 7, c: int = 3, m: int = 11, den: int = 4) -> np.ndarray:
    """Small fractions in a fixed pattern: element i, in row-major order, is (((a*i + c) mod m) - m//2)/den.

    Returns float64 of `shape`; exact in binary when `den` is a power of two, and the same in every language.
    """
    i = np.arange(np.prod(shape, dtype=int))
    return (((a * i + c) % m - m // 2) / den).reshape(shape)


def normal(shape: tuple[int, ...], seed: int, std: float = 1.0, mean: float = 0.0) -> np.ndarray:
    """Normal numbers with standard deviation `std` around `mean` from NumPy's Philox generator, float64 of `shape`."""
    return mean + std * np.random.Generator(np.random.Philox(seed)).standard_normal(shape)


def read(path: Path, tensor: str | None) -> np.ndarray:
    """The array in a .npy file, or a `tensor` of a .safetensors file, in its own dtype."""
    if tensor is None:
        return np.load(path, allow_pickle=False)
    from safetensors import safe_open

    with safe_open(path, "np") as file:
        return file.get_tensor(tensor)


def friendly(shape: tuple[int, ...], seed: int, decimals: int = 1) -> np.ndarray:
    """Numbers that are pleasant by hand: multiples of 10^-decimals in (-1, 1), none of them 0, no two rows of a matrix alike.

    Drawn from the raw 64-bit words of NumPy's Philox generator, of which a row takes one each; a row that its matrix has already is drawn
    again, so at least half of all possible rows must be left over. Returns float64 of `shape`.
    """
    bits, most = np.random.Philox(seed), 10**decimals - 1  # steps to either side of 0
    width, rows = shape[-1], shape[-2] if len(shape) > 1 else 1
    drawn: list[tuple] = []
    for _ in range(np.prod(shape[:-2], dtype=int)):
        matrix: dict[tuple, None] = {}
        while len(matrix) < rows:
            steps = (bits.random_raw(width) % (2 * most)).astype(int) - most
            matrix[tuple(np.where(steps < 0, steps, steps + 1).tolist())] = None
        drawn += matrix
    return np.array(drawn).reshape(shape) / 10**decimals


FILLED = {"grid": grid, "normal": normal, "friendly": friendly}  # parameters that are made and not read, by the key that asks for them


def torch_draws(order: list[str], shapes: dict[str, tuple[int, ...]], seed: int, dtype: str) -> dict[str, np.ndarray]:
    """Parameters drawn one after the other, as torch code that makes them in that order would.

    order: names. shapes: by name; a bias `b_q` is drawn for the fan-in of `w_q`. dtype: in which torch draws. Inputs come from
    torch.randn, weights and biases from the initialisation of torch.nn.Linear (uniform within 1/sqrt(fan_in)). Returns float64 arrays
    by name.
    """
    import torch

    torch.manual_seed(seed)
    drawn = {}
    for name in order:
        array = torch.empty(shapes[name], dtype=getattr(torch, dtype))
        if name not in WEIGHTS:
            array = torch.randn(shapes[name], dtype=array.dtype)
        elif name.startswith("w_"):
            torch.nn.init.kaiming_uniform_(array, a=5**0.5)
        else:
            bound = shapes["w" + name[1:]][1] ** -0.5
            torch.nn.init.uniform_(array, -bound, bound)
        drawn[name] = array.double().numpy()  # exactly, and NumPy has no bfloat16 of torch's
    return drawn


def stage(case: dict, folder: Path) -> dict[str, np.ndarray]:
    """Every parameter of a resolved `case` as an array of its dtype; files are read from `folder`."""
    arrays = {}
    for name, spec in case["parameters"].items():
        shape = tuple(case["shapes"][name])
        if isinstance(spec, list):
            array = np.array(spec) if name in BOOLEAN else np.array(spec, dtype=np.float64)
        elif "file" in spec:
            array = read(folder / spec["file"], spec.get("tensor"))
        else:
            ((kind, options),) = spec.items()
            array = FILLED[kind](shape, **options)
        arrays[name] = array.astype(bool if name in BOOLEAN else case["dtype"])
    if draws := case["torch_draws"]:
        drawn = torch_draws(draws["order"], case["shapes"], draws["seed"], case["dtype"])
        arrays |= {name: array.astype(case["dtype"]) for name, array in drawn.items()}
    return {name: arrays[name] for name in case["arrays"]["parameters"]}
