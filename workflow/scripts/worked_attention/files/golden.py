"""Golden vectors for other programs: every array of a case as .npy with a manifest, and ONNX test folders where ONNX can say the case.

results/export/{suite}/manifest.json, golden.safetensors, SHA256SUMS, plain/{case}/case.json and {array}.npy, onnx/test_{case}/
"""

import hashlib
import math
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path

import numpy as np

from worked_attention import __version__
from worked_attention.files.artifacts import describe
from worked_attention.files.formats import write_bytes, write_json, write_text
from worked_attention.files.sums import SUMS, sums
from worked_attention.stages.precision import bfloat16
from worked_attention.stages.projections import latest

FORMAT = 1
MADE_BY = f"worked-attention {__version__}"
TENSORS = "golden.safetensors"
OPSET, IR_VERSION = 23, 11  # the first opset with Attention, and the file format that goes with it
NOT_INSTALLED = "the package onnx is not installed"
TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-2, "bfloat16": 2e-2}  # of one stage, by the coarsest arithmetic in it
NO_OPTIONS = (
    "format",
    "suite",
    "name",
    "parameters",
    "torch_draws",
    "spelled",
    "arrays",
    "shapes",
    "bytes",
    "claims",
)  # said elsewhere, or not at all
README = """\
# Golden vectors of the suite {suite}

Every array of every stage of each case, to test an attention in any language against.

- `manifest.json`: what is here, and which version of which package made it. `format` is {format}; it changes when this page does.
- `golden.safetensors`: all arrays in one file, each under the name `case/array`, bfloat16 as such.
- `SHA256SUMS`: of every other file; `sha256sum -c SHA256SUMS` checks them.
- `plain/{{case}}/`: one `.npy` file per array, and `case.json`, which is the case's entry in the manifest, without `onnx`.
- `onnx/test_{{case}}/`: the case as a test of the ONNX operator Attention, where the operator can say it.

## The manifest

`cases` holds for each case:

- `tolerance`: how far one stage, computed in any order from the arrays of the stages before it, may be from the file, as a part of the
  largest element (or of 1, if that is larger). A rule of thumb by the coarsest arithmetic of the case.
- `options`: every option of the case, with defaults filled in: heads, `scale_factor` (what multiplies q·k), mask, softmax …
- `arrays`: for each array its `stage`, `shape`, `dtype`, `axes`, `formula`, `file` (below this folder) and `sha256` (of the file).
- `onnx`: `folder`, `attributes`, `inputs` and `outputs` of the ONNX test, or the `reason` why there is none.

JSON is strict; floats round-trip exactly. The stages, in the order in which they are computed: parameters, projections, scores,
weights, contexts, outputs, backward. An array that a case does not need is not there. Three are read more often than others:
`masked` is what enters the softmax; `weights` is what comes out of it; `contexts` is the weighted mean of the values per head, with
`dropped` in place of `weights` if it is there, and with the first of `v_extended`, `present_v` and `v_heads` that is there as
the values. Where there are fewer key and value heads than query heads, each serves a block of neighbouring query heads.

## The .npy files

Version 1.0 of NumPy's format: the bytes `93 4E 55 4D 50 59 01 00`, the length of the header as two bytes, a header in ASCII such as
`{{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }}`, then the numbers, all little-endian, the last index fastest.
`descr` is `<f8`, `<f4` or `<f2` for float64, float32 and float16, and `|b1` for bool (one byte, 0 or 1). bfloat16 is stored as
`<u2`: the 16 bits are the upper half of a float32.

## The ONNX tests

As in ONNX's own backend tests: `model.onnx` (one node, opset {opset}) and `test_data_set_0/input_N.pb` and `output_N.pb`, in the order
of the manifest. Queries and keys are those that enter the product (normed, rotated), and all masks and biases stand together in
`attn_mask`. A case without a batch has a batch of one. The expected outputs are those of the plain form. ONNX has changed what the
operator means without raising the opset (softcap, masks, rows without a key), so the manifest also tells the version of the package.
Where a program takes 1/√d_k in float32, as ONNX's own function body does, float64 cases differ by up to about 1e-7.
"""


def write_plain(root: Path, case: dict, arrays: dict[str, np.ndarray]) -> dict:
    """Write `arrays` of a resolved `case` to root/plain/{case}/. Returns the case's entry of the manifest."""
    folder = Path("plain") / case["name"]
    described = {}
    for stage, names in case["arrays"].items():
        for name in names:
            data = npy(arrays[name])
            path = folder / f"{name}.npy"
            write_bytes(root / path, lambda file, data=data: file.write(data))
            described[name] = {
                "stage": stage,
                **describe(case, name, arrays[name]),
                "file": path.as_posix(),
                "sha256": hashlib.sha256(data).hexdigest(),
            }
    coarsest = max((case["dtype"], *case["precision"].values()), key=TOLERANCES.get)
    entry = {
        "tolerance": TOLERANCES[coarsest],
        "options": {key: value for key, value in case.items() if key not in NO_OPTIONS},
        "arrays": described,
    }
    write_json(root / folder / "case.json", {"format": FORMAT, "suite": case["suite"], "case": case["name"], **entry})
    return entry


def write_tensors(root: Path, suite: str, arrays: dict[str, dict[str, np.ndarray]]) -> dict:
    """Write the arrays of all cases, {case: {name: array}}, to one .safetensors file, each under the name case/array, bfloat16 as such.
    Returns what the manifest says of it."""
    from safetensors.numpy import save

    tensors = {f"{case}/{name}": np.ascontiguousarray(array) for case, made in arrays.items() for name, array in made.items()}
    data = save(tensors, {"made_by": MADE_BY})
    write_bytes(root / TENSORS, lambda file: file.write(data))
    return {"file": TENSORS, "tensors": len(tensors), "sha256": hashlib.sha256(data).hexdigest()}


def npy(array: np.ndarray) -> bytes:
    """`array` as a .npy file, version 1.0, little-endian, C order; bfloat16, which the format does not know, as its bits (uint16)."""
    bits = array.view(np.uint16) if array.dtype == bfloat16 else array
    file = BytesIO()
    np.lib.format.write_array(file, np.ascontiguousarray(bits, bits.dtype.newbyteorder("<")), version=(1, 0), allow_pickle=False)
    return file.getvalue()


def inexpressible(case: dict, arrays: dict[str, np.ndarray]) -> str | None:
    """Why ONNX's Attention (opset 23) cannot say the case, in a few words; None if it can."""
    scale, cap, dtype, mask = case["scale_factor"], case["softcap"], case["dtype"], case["mask"]
    blocked = arrays.get("capped", arrays["scaled"])[~arrays["keep"]] if "keep" in arrays else np.zeros(0)
    empty = bool((arrays["masked"] == -np.inf).all(axis=-1).any())
    reasons = {
        "the case begins at scaled scores, the operator at queries and keys": "q_heads" not in arrays,
        f"the operator does not say how sums are rounded in {dtype}": dtype not in ("float64", "float32"),
        "the operator has no other precision inside a stage": set(case["precision"].values()) != {dtype},
        "the operator has no sinks": "sinks" in arrays,
        f"the operator has no softmax: {case['softmax']}": case["softmax"] != "plain",
        "the operator has no dropout": "dropout_keep" in arrays,
        f"the operator's scale is greater than 0, here it is {scale:g}": scale <= 0,
        f"the operator has its scale and the root of it in float32, which changes {scale!r}": case["scale"] != "1/sqrt(d_k)"
        and scale > 0
        and not (_says(scale, dtype) and _says(math.sqrt(scale), dtype)),
        f"the operator has its softcap in float32, which changes {cap!r}": cap is not None and not _says(cap, dtype),
        f"the operator adds its mask, and so cannot turn a blocked score into {mask['fill']}": blocked.size > 0 and mask["fill"] != "-inf",
        "the operator adds its mask, and so cannot block a score that is not finite": not np.isfinite(blocked).all(),
        f"the operator's weights are zero where no key is left, and here empty_row is {mask['empty_row']}": empty
        and mask["empty_row"] != "zero",
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _says(number: float, dtype: str) -> bool:
    """Whether an attribute of type float32 gives a case of this dtype its `number`."""
    return dtype == "float32" or float(np.float32(number)) == number


def onnx_test(case: dict, arrays: dict[str, np.ndarray]) -> tuple[dict, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(attributes, inputs by name, outputs by name) of ONNX's Attention for a case that it can say.

    Q [B, H, Lq, d_k], K [B, H_kv, Lk, d_k], V [B, H_kv, Lk, d_v], attn_mask [B, H, Lq, Lk] and Y [B, H, Lq, d_v]; with a cache
    K and V are the new ones, past_key and past_value go in, present_key and present_value come out.
    """
    attributes = {} if case["scale"] == "1/sqrt(d_k)" else {"scale": case["scale_factor"]}
    if case["softcap"]:
        attributes["softcap"] = float(case["softcap"])
    cached = "past_k" in arrays and "k_extended" not in arrays
    used = {name: array for name, array in arrays.items() if not (cached and name.startswith("present_"))}
    inputs = {"Q": latest(used, "q"), "K": latest(used, "k"), "V": latest(used, "v")}
    if (mask := attn_mask(arrays)) is not None:
        inputs["attn_mask"] = mask
    outputs = {"Y": arrays["contexts"]}
    if cached:
        inputs |= {"past_key": arrays["past_k"], "past_value": arrays["past_v"]}
        outputs |= {"present_key": arrays["present_k"], "present_value": arrays["present_v"]}
    if "B" not in case["dims"]:
        inputs, outputs = ({name: array[None] for name, array in side.items()} for side in (inputs, outputs))
    return attributes, inputs, outputs


def attn_mask(arrays: dict[str, np.ndarray]) -> np.ndarray | None:
    """`keep`, or `bias`, or both as `bias` with -inf where a key is blocked, [..., H, Lq, Lk]; None if the case has neither."""
    keep, bias = arrays.get("keep"), arrays.get("bias")
    return np.where(keep, bias, bias.dtype.type(-np.inf)) if keep is not None and bias is not None else bias if keep is None else keep


def write_onnx(folder: Path, attributes: dict, inputs: dict[str, np.ndarray], outputs: dict[str, np.ndarray]) -> None:
    """Write an ONNX backend test to `folder`: model.onnx and test_data_set_0/. Raises ImportError without the package onnx."""
    from onnx import helper, numpy_helper

    places = ("Q", "K", "V", "attn_mask", "past_key", "past_value")
    last = max(places.index(name) for name in inputs)
    node = helper.make_node("Attention", [name if name in inputs else "" for name in places[: last + 1]], list(outputs), **attributes)
    ends = [
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape) for name, array in side.items()]
        for side in (inputs, outputs)
    ]
    graph = helper.make_graph([node], folder.name, *ends)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    messages = {"model.onnx": model}
    for kind, side in (("input", inputs), ("output", outputs)):
        for i, (name, array) in enumerate(side.items()):
            messages[f"test_data_set_0/{kind}_{i}.pb"] = numpy_helper.from_array(np.ascontiguousarray(array), name)
    for path, message in messages.items():
        write_bytes(folder / path, lambda file, message=message: file.write(message.SerializeToString(deterministic=True)))


def export_onnx(root: Path, case: dict, arrays: dict[str, np.ndarray]) -> dict:
    """Write root/onnx/test_{case}/ if ONNX can say the case. Returns what the manifest says of it."""
    if reason := inexpressible(case, arrays):
        return {"reason": reason}
    attributes, inputs, outputs = onnx_test(case, arrays)
    folder = Path("onnx") / f"test_{case['name']}"
    try:
        write_onnx(root / folder, attributes, inputs, outputs)
    except ImportError:
        return {"reason": NOT_INSTALLED}
    return {"folder": folder.as_posix(), "attributes": attributes, "inputs": list(inputs), "outputs": list(outputs)}


def onnx_facts() -> dict | None:
    """The version of the package onnx and the opset of the tests; None if the package is not installed."""
    try:
        import onnx
    except ImportError:
        return None
    return {"version": onnx.__version__, "opset": OPSET}


def export_suite(root: Path, suite: dict, cases: Iterable[tuple[dict, dict[str, np.ndarray]]]) -> int:
    """Write a suite to `root`: of each resolved case its arrays as .npy and the ONNX test, if ONNX can say it; all arrays once more in one
    .safetensors file; manifest.json, the README.md that explains it, and SHA256SUMS. Returns the number of cases.

    suite: {name, ...}. cases: each with all its arrays.
    """
    entries, arrays = {}, {}
    for case, made in cases:
        entries[case["name"]] = write_plain(root, case, made) | {"onnx": export_onnx(root, case, made)}
        arrays[case["name"]] = made
    tensors = write_tensors(root, suite["name"], arrays)
    manifest = {"format": FORMAT, "suite": suite["name"], "made_by": MADE_BY, "onnx": onnx_facts(), "tensors": tensors, "cases": entries}
    write_json(root / "manifest.json", manifest)
    write_text(root / "README.md", README.format(suite=suite["name"], format=FORMAT, opset=OPSET))
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.name.startswith("."))
    write_text(root / SUMS, sums({path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}))
    return len(entries)


def differences(root: Path, cases: Iterable[tuple[dict, dict[str, np.ndarray]]]) -> Iterator[str]:
    """What a released set at `root`, a folder that `export_suite` made, says otherwise than the `cases` of today: a line for each array
    that has other numbers, that is missing or that is more, and for each such case. Raises OSError or ValueError if it is none."""
    from safetensors import SafetensorError, safe_open

    cases = {f"{case['name']}/{name}": array for case, made in cases for name, array in made.items()}
    try:
        with safe_open(root / TENSORS, "np") as file:
            released = set(file.keys())
            for name in sorted(set(cases) & released):
                yield from _changed(name, file.get_tensor(name), cases[name])
    except SafetensorError as error:
        raise ValueError(f"{TENSORS} is damaged ({error})") from None
    yield from (f"{name}: is missing in the released set" for name in sorted(set(cases) - released))
    yield from (f"{name}: is in the released set alone" for name in sorted(released - set(cases)))


def _changed(name: str, was: np.ndarray, now: np.ndarray) -> Iterator[str]:
    """A line if two arrays are not the same, bit by bit but for the kind of NaN."""
    if was.shape != now.shape or was.dtype != now.dtype:
        yield f"{name}: was {list(was.shape)} in {was.dtype.name}, is {list(now.shape)} in {now.dtype.name}"
    elif not np.array_equal(was, now, equal_nan=now.dtype != bool):
        a, b = was.astype(np.float64), now.astype(np.float64)
        with np.errstate(invalid="ignore"):
            off = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        most = np.where(np.isnan(off), np.inf, off).max()  # where one of them alone is NaN
        yield f"{name}: {np.count_nonzero(off)} of {off.size} numbers differ, by {most:.3g} at most"
