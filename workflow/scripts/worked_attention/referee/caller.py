"""Calls the functions of somebody's Python file, case by case, in a process of its own: python caller.py FILE FOLDER.

FOLDER holds cases.json and parameters.npz. Written are out/{suite}/{case}/{array}.npy and, as soon as a case is done, its line of
told.jsonl: ["suite/case", word, text, names]. The word is null where arrays were written, names are those of what is no array that the
case computes. If the file itself is of no use, there is one line, of the case "".
"""

import importlib.util
import inspect
import json
import sys
import traceback
from copy import deepcopy
from pathlib import Path
from types import ModuleType

COMPUTED = ("projections", "scores", "weights", "contexts", "outputs", "backward")


def told(error: BaseException, file: Path) -> str:
    """An exception in one line, with the last line of the file that it came through."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    text = str(error)
    if isinstance(error, SyntaxError) and error.filename == str(file):
        lines.append(error.lineno)
        text = error.msg  # its own text names the line as well
    text = (text.splitlines() or [""])[0][:200]
    return f"raised {type(error).__name__}{': ' * bool(text)}{text}{f' (line {lines[-1]} of {file.name})' if lines else ''}"


def import_ours() -> None:
    """Import all that is needed of our package, and leave its folder on the path only if it was there: the author's names are free."""
    ours = str(Path(__file__).parents[2])
    added = ours not in sys.path
    sys.path[:0] = [ours] * added
    import worked_attention.referee.chain  # noqa: F401

    if added:
        sys.path.remove(ours)


def load(file: Path) -> ModuleType:
    """The file as a module; what lies beside it can be imported, and comes before anything else of the same name."""
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location("submission", file)
    module = importlib.util.module_from_spec(spec)
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


def numbers(value: object):
    """A copy of `value` as a NumPy array, also from a tensor."""
    import numpy as np

    from worked_attention.stages.precision import bfloat16

    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":  # torch does not make an array of it
            return value.float().numpy().astype(bfloat16)
    array = np.asarray(value)
    if array.dtype == object:
        raise TypeError("an array is ragged, or holds Python objects")
    return array.copy()


def answer(module: ModuleType, case: dict, arrays: dict) -> dict | None:
    """The arrays that the file makes of one case; None if it returns nothing.

    Stages for which it has no function are ours, computed from what its own functions made.
    """
    import numpy as np

    from worked_attention.referee.chain import fill
    from worked_attention.stages.precision import bfloat16

    if hasattr(module, "attention"):
        made = call(module.attention, case, arrays)
        if made is None or isinstance(made, dict):
            return made and {name: numbers(value) for name, value in made.items()}
        return {"output": numbers(made)}
    answers, known = {}, dict(arrays)
    last = max(i for i, stage in enumerate(COMPUTED) if hasattr(module, stage))
    for stage in [stage for stage in COMPUTED[: last + 1] if case["arrays"][stage]]:
        if hasattr(module, stage):
            made = call(getattr(module, stage), case, known)
            if made is not None and not isinstance(made, dict):
                if len(case["arrays"][stage]) > 1:
                    raise TypeError(f"{stage} should return a dict of arrays by name")
                made = {case["arrays"][stage][0]: made}
            answers = {name: numbers(value) for name, value in (made or {}).items()} | answers  # what was answered stays
        used = {name: array.astype(np.float32) if array.dtype == bfloat16 else array for name, array in answers.items()}
        try:
            known |= fill(case, stage, known, used) | used | arrays
        except (ValueError, IndexError):  # with a shape that is wrong there is no going on
            break
    return answers or None


def judgeable(module: ModuleType, case: dict, arrays: dict, file: Path, target: Path) -> tuple[str | None, str, list[str]]:
    """Write what the file makes of one case to the folder `target`; returns word, text and names as told.jsonl has them."""
    import numpy as np

    try:
        with np.errstate(all="ignore"):
            made = answer(module, case, arrays)
        if made is None:
            return "not sent", "returned nothing", []
        computed = [name for name in case["shapes"] if name not in case["arrays"]["parameters"]]
        for name in made.keys() & set(computed):
            np.save(target / f"{name}.npy", made[name], allow_pickle=False)
        names = [str(name) for name in made if name not in computed]
        if len(names) == len(made):
            return "unreadable", f"returned no array of the case; it has {', '.join(computed)}", names
        return None, "", names
    except NotImplementedError as error:
        return "unsupported", (str(error).splitlines() or [""])[0][:200] or "raised NotImplementedError", []
    except BaseException as error:  # also SystemExit and KeyboardInterrupt
        return "failed", told(error, file), []


def main(file: Path, folder: Path) -> None:
    import numpy as np

    def tell(*line) -> None:
        with open(folder / "told.jsonl", "a", encoding="utf-8") as lines:
            lines.write(json.dumps(line) + "\n")

    try:
        module = load(file)
    except BaseException as error:
        return tell("", "failed", told(error, file), [])
    if not any(callable(getattr(module, name, None)) for name in ("attention", *COMPUTED)):
        return tell("", "failed", f"defines no function attention, nor one of {', '.join(COMPUTED)}", [])
    parameters = np.load(folder / "parameters.npz", allow_pickle=False)
    given: dict[str, dict] = {}
    for key in parameters.files:
        suite, case, name = key.split("/")
        given.setdefault(f"{suite}/{case}", {})[name] = parameters[key]
    for entry in json.loads((folder / "cases.json").read_bytes()):
        case = entry["case"]
        key = f"{case['suite']}/{case['name']}"
        case["parameters"] = given.get(key, {})
        (folder / "out" / key).mkdir(parents=True)
        tell(key, *judgeable(module, case, case["parameters"], file, folder / "out" / key))


if __name__ == "__main__":
    import_ours()
    main(Path(sys.argv[1]), Path(sys.argv[2]))
