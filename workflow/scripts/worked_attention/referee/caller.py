"""Calls the functions of somebody's Python file in a process of its own, one case at a time; `running` is the other end.

Each request and each answer is a frame: a token, two lengths, a JSON header and .npy files. A request brings a token that nobody knew
before, and an answer has to begin with it; so nothing that the file prints, or writes to any place before it is called, is taken for an
answer. Header of a request: {case} or {} (load the file); of an answer: {word, text, names, arrays}.
"""

import importlib.util
import inspect
import io
import json
import os
import signal
import socket
import sys
import threading
import traceback
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from types import ModuleType

import numpy as np

from worked_attention.referee import printed
from worked_attention.referee.chain import fill
from worked_attention.referee.handed import READY
from worked_attention.referee.kernels import laid_out, meant, order, refusal, taken_back
from worked_attention.stages.catalogue import COMPUTED
from worked_attention.stages.precision import bfloat16

MAIN = {"scores": "masked", "weights": "weights", "contexts": "contexts", "outputs": "output"}  # what a lone array of a stage is
KINDS = ("numpy", "torch")  # of the arrays that a file is handed
SMALL = 1_000_000  # bytes, what any file or array may have
TOKEN = 16  # bytes
NAMES = 20  # names that are no arrays of the case; the others are not told
Arrays = dict[str, np.ndarray]


def largest(shape: tuple[int, ...]) -> int:
    """Bytes that a .npy file of an array that should have this shape may have."""
    return max(SMALL, 32 * int(np.prod(shape, dtype=object)))


def npy(array: np.ndarray) -> bytes:
    """`array` as the contents of a .npy file."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def frame(token: bytes, header: dict, arrays: Arrays) -> bytes:
    """One message: `token`, the lengths of header and body, the header with [name, bytes] of each of the `arrays`, and these as .npy."""
    files = [npy(array) for array in arrays.values()]
    sizes = [[name, len(file)] for name, file in zip(arrays, files, strict=True)]
    head = json.dumps(header | {"arrays": sizes}).encode()
    body = b"".join(files)
    return token + len(head).to_bytes(8) + len(body).to_bytes(8) + head + body


def worded(error: BaseException) -> str:
    """The first line of what an exception says, at most 200 letters; somebody else's exception may raise when it is asked."""
    try:
        text = error.msg if isinstance(error, SyntaxError) else str(error)  # the text of a SyntaxError names the line as well
        return (str(text).splitlines() or [""])[0][:200]
    except Exception:
        return "its text cannot be had"


def told(error: BaseException, file: Path) -> str:
    """An exception in one line, with the last line of the file that it came through."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    text = worded(error)
    if isinstance(error, SyntaxError) and error.filename == str(file):
        lines.append(error.lineno)
    return f"raised {type(error).__name__}{': ' * bool(text)}{text}{f' (line {lines[-1]} of {file.name})' if lines else ''}"


def load(file: Path) -> ModuleType:
    """The file as a module; what lies beside it can be imported, and comes before anything else of the same name."""
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location("worked_attention_submission", file)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def call(function, case: dict, arrays: dict):
    """`function(case, arrays)`, or `function(case)` if it takes one argument; it gets copies, which it may change as it likes."""
    case, arrays = deepcopy((case, arrays))
    try:
        kinds = [parameter.kind for parameter in inspect.signature(function).parameters.values()]
        both = sum(kind <= inspect.Parameter.VAR_POSITIONAL for kind in kinds) > 1 or inspect.Parameter.VAR_POSITIONAL in kinds
    except (TypeError, ValueError):
        both = True
    return function(case, arrays) if both else function(case)


def numbers(value: object, shape: tuple[int, ...]) -> np.ndarray:
    """A copy of `value` as a NumPy array, also from a tensor of another library, wherever it lies; of printed numbers, the pairs that
    `printed.read` makes of them and of the `shape` that they should have. Raises TypeError if it is no array of numbers."""
    if printed.is_printed(value) and not isinstance(value, str):  # a text alone is no array
        return printed.read(value, shape)
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":  # torch does not make an array of it
            return value.float().numpy().astype(bfloat16)
    elif hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        value = np.from_dlpack(value)
    array = np.asarray(value)
    if array.dtype == object:
        raise TypeError("an array is ragged, or holds Python objects")
    return array.copy()


def as_asked(module: object, case: dict, arrays: Arrays) -> dict:
    """The arrays as the `ARRAYS` of a file asks for them: of NumPy, as by default, or as torch tensors, of bfloat16 in such a case."""
    asked = getattr(module, "ARRAYS", "numpy")
    if asked not in KINDS:
        raise ValueError(f"ARRAYS is {asked!r}, should be {' or '.join(KINDS)}")
    if asked == "numpy":
        return arrays
    import torch

    half = case["dtype"] == "bfloat16"
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    return {name: tensor.bfloat16() if half and tensor.dtype == torch.float32 else tensor for name, tensor in tensors.items()}


def lone(case: dict, made: np.ndarray) -> str:
    """The name of the array that a function `attention` returned alone: the contexts if it has their shape, else the output; the weights
    of a case that has nothing to average."""
    if "output" not in case["shapes"]:
        return "weights"
    contexts = tuple(case["shapes"]["contexts"])
    return "contexts" if made.shape in (contexts, (1, *contexts)) else "output"


def answer(module: object, case: dict, arrays: Arrays) -> Arrays | None:
    """The arrays that the functions of `module` make of one case; None if they return nothing.

    module: anything with a function `attention`, which is a kernel if there are CAN or AXES beside it, or functions named after stages;
    those for which it has none are ours, computed from what its own functions made. case: resolved, with `arrays`, its parameters by
    name, under `parameters` too. arrays: as `handed`; what is READY is for `attention` alone, since a stage goes on from what was made
    before it.
    """

    def called(function, arrays: Arrays):
        given = as_asked(module, case, arrays)
        return call(function, case | {"parameters": {name: given[name] for name in case["arrays"]["parameters"]}}, given)

    def shape(name: str) -> tuple[int, ...]:
        return tuple(case["shapes"][name]) if name in case["shapes"] else ()

    if hasattr(module, "attention"):
        if reason := refusal(module, case):
            raise NotImplementedError(reason)
        axes = order(module)
        made = called(module.attention, laid_out(case, arrays, axes) if axes else arrays)
        if made is None:
            return None
        if isinstance(made, dict) and not printed.has_digits(made):
            found = {name: numbers(value, shape(name)) for name, value in made.items()}
        else:
            made = numbers(made, shape("output" if "output" in case["shapes"] else "weights"))
            found = {meant(module) or lone(case, made): made}
        return found | {"contexts": taken_back(found["contexts"], axes)} if axes and "contexts" in found else found
    answers, given = {}, {name: array for name, array in arrays.items() if name not in READY}
    known = dict(given)
    last = max(i for i, stage in enumerate(COMPUTED) if hasattr(module, stage))
    for stage in [stage for stage in COMPUTED[: last + 1] if case["arrays"][stage]]:
        if hasattr(module, stage):
            made = called(getattr(module, stage), known)
            if made is not None and (not isinstance(made, dict) or printed.has_digits(made)):
                if stage not in MAIN:
                    raise TypeError(f"{stage} should return a dict of arrays by name")
                made = {MAIN[stage]: made}
            answers = {name: numbers(value, shape(name)) for name, value in (made or {}).items()} | answers  # what was answered stays
        used = {name: printed.apart(array)[0] for name, array in answers.items()}
        used = {name: array.astype(np.float32) if array.dtype == bfloat16 else array for name, array in used.items()}
        try:
            known |= fill(case, stage, known, used) | used | given
        except (ValueError, IndexError):  # with a shape that is wrong there is no going on
            break
    return answers or None


def answered(module: object, case: dict, arrays: Arrays) -> tuple[dict, Arrays]:
    """What `module` makes of one case, as (header, arrays) of an answer; see `answer`. Raises whatever its functions raise.

    The word is None where there are arrays; names are those of what is no array that the case computes.
    """

    def nothing(word: str, text: str, names: list[str]) -> tuple[dict, Arrays]:
        return {"word": word, "text": text, "names": names}, {}

    try:
        with np.errstate(all="ignore"):
            made = answer(module, case, arrays)
    except NotImplementedError as error:
        return nothing("unsupported", worded(error) or "raised NotImplementedError", [])
    if made is None:
        return nothing("unsupported", "returned nothing", [])
    computed = [name for name in case["shapes"] if name not in case["arrays"]["parameters"]]
    names = [str(name)[:100] for name in made if name not in computed][:NAMES]
    sent = {name: array for name, array in made.items() if name in computed}
    if not sent:
        return nothing("unreadable", f"returned no array of the case; it has {', '.join(computed)}", names)
    for name, array in sent.items():
        if array.nbytes > largest(case["shapes"][name]) - 10_000:  # the rest is the header of its file
            shapes = f"has shape {list(array.shape)}, should have {list(case['shapes'][name])}"
            return nothing("unreadable", f"{name} is too large, {array.nbytes:,} bytes: it {shapes}", names)
    return {"word": None, "text": "", "names": names}, sent


def end_with(parent: int) -> None:
    """Kill this process and all of its group as soon as the other end of the pipe `parent` is gone."""

    def wait() -> None:
        os.read(parent, 1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def requests(channel: socket.socket):
    """Each (token, header, {name: array}) that comes in, until the channel is closed."""
    with channel.makefile("rb") as stream:
        while token := stream.read(TOKEN):
            head, body = int.from_bytes(stream.read(8)), int.from_bytes(stream.read(8))
            header, files = json.loads(stream.read(head)), io.BytesIO(stream.read(body))
            yield token, header, {name: np.load(files, allow_pickle=False) for name, _ in header["arrays"]}


def main(file: Path, descriptor: int) -> None:
    """Answer the requests that come over the socket `descriptor` with what the functions of `file` make of them."""
    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    end_with(os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    sys.argv[:] = [str(file)]
    module = None
    for token, header, arrays in requests(channel):
        if module is None:
            header, arrays = {"word": None, "text": "", "names": []}, {}
            try:
                module = load(file)
                if not any(callable(getattr(module, name, None)) for name in ("attention", *COMPUTED)):
                    header |= {"word": "failed", "text": f"defines no function attention, nor one of {', '.join(COMPUTED)}"}
                elif hasattr(module, "CONVENTIONS"):
                    header |= {"text": json.dumps(module.CONVENTIONS, default=repr)[: SMALL // 2]}
            except BaseException as error:
                header |= {"word": "failed", "text": told(error, file)}
        else:
            try:
                header, arrays = answered(module, header["case"], arrays)
            except BaseException as error:  # also SystemExit and KeyboardInterrupt
                header, arrays = {"word": "failed", "text": told(error, file), "names": []}, {}
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # it is theirs to close
                stream.flush()
        channel.sendall(frame(token, header, arrays))
