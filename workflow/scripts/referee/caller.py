"""Calls the functions of somebody's Python file, case by case, in a process of its own: python caller.py FILE FOLDER.

FOLDER holds cases.json and parameters.npz; written are out/{suite}/{case}/{array}.npy and told.json, {"suite/case": [word, text]} where
a function raised or returned nothing, and "" if the file itself is of no use.
"""

import importlib.util
import inspect
import json
import sys
import traceback
from pathlib import Path
from types import ModuleType

COMPUTED = ("projections", "scores", "weights", "contexts", "outputs", "backward")


def told(error: BaseException, file: Path) -> str:
    """An exception in one line, with the last line of the file that it came through."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    if isinstance(error, SyntaxError) and error.filename == str(file):
        lines.append(error.lineno)
    text = (str(error).splitlines() or [""])[0][:200]
    return f"raised {type(error).__name__}{': ' * bool(text)}{text}{f' (line {lines[-1]} of {file.name})' if lines else ''}"


def load(file: Path) -> ModuleType:
    """The file as a module; what lies beside it can be imported."""
    sys.path.append(str(file.parent))
    spec = importlib.util.spec_from_file_location("submission", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def call(function, case: dict, arrays: dict):
    """`function(case, arrays)`, or `function(case)` if it takes one argument."""
    try:
        kinds = [parameter.kind for parameter in inspect.signature(function).parameters.values()]
        both = sum(kind <= inspect.Parameter.VAR_POSITIONAL for kind in kinds) > 1 or inspect.Parameter.VAR_POSITIONAL in kinds
    except (TypeError, ValueError):
        both = True
    return function(case, arrays) if both else function(case)


def numbers(value: object):
    """`value` as a NumPy array, also from a tensor."""
    import numpy as np

    value = value.detach().cpu() if hasattr(value, "detach") else value
    array = np.asarray(value)
    if array.dtype == object:
        raise TypeError("an array is ragged, or holds Python objects")
    return array


def answer(module: ModuleType, case: dict, arrays: dict) -> dict | None:
    """The arrays that the file makes of one case; None if it returns nothing.

    Stages for which it has no function are ours, computed from what its own functions made.
    """
    from referee.chain import fill

    if hasattr(module, "attention"):
        made = call(module.attention, case, dict(arrays))
        if made is None or isinstance(made, dict):
            return made and {name: numbers(value) for name, value in made.items()}
        return {"output": numbers(made)}
    answers, known = {}, dict(arrays)
    last = max(i for i, stage in enumerate(COMPUTED) if hasattr(module, stage))
    for stage in [stage for stage in COMPUTED[: last + 1] if case["arrays"][stage]]:
        made = {}
        if hasattr(module, stage):
            made = call(getattr(module, stage), case, dict(known))
            if made is not None and not isinstance(made, dict):
                if len(case["arrays"][stage]) > 1:
                    raise TypeError(f"{stage} should return a dict of arrays by name")
                made = {case["arrays"][stage][0]: made}
            made = {name: numbers(value) for name, value in (made or {}).items()}
            answers |= made
        try:
            known |= fill(case, stage, known, made) | made
        except (ValueError, IndexError):  # with a shape that is wrong there is no going on
            break
    return answers or None


def main(file: Path, folder: Path) -> None:
    sys.path[0] = str(Path(__file__).parent.parent)  # our own packages, before anything that lies beside the file
    import numpy as np

    said: dict[str, list[str]] = {}

    def write_said() -> None:
        (folder / "told.json").write_text(json.dumps(said), "utf-8")

    import referee.chain  # noqa: F401  so that no file of the same name beside the submission is taken for it

    try:
        module = load(file)
    except (Exception, SystemExit) as error:
        said[""] = ["failed", told(error, file)]
        return write_said()
    if not any(callable(getattr(module, name, None)) for name in ("attention", *COMPUTED)):
        said[""] = ["failed", f"defines no function attention, nor one of {', '.join(COMPUTED)}"]
        return write_said()
    parameters = np.load(folder / "parameters.npz", allow_pickle=False)
    given: dict[str, dict] = {}
    for key in parameters.files:
        suite, case, name = key.split("/")
        given.setdefault(f"{suite}/{case}", {})[name] = parameters[key]
    for entry in json.loads((folder / "cases.json").read_bytes()):
        case = entry["case"]
        key = f"{case['suite']}/{case['name']}"
        arrays = given.get(key, {})
        case["parameters"] = dict(arrays)
        try:
            with np.errstate(all="ignore"):
                made = answer(module, case, arrays)
            if made is None:
                said[key] = ["not sent", "returned nothing"]
                continue
            target = folder / "out" / key
            target.mkdir(parents=True, exist_ok=True)
            for name, array in made.items():
                if name in case["shapes"]:
                    np.save(target / f"{name}.npy", array, allow_pickle=False)
        except NotImplementedError as error:
            said[key] = ["unsupported", (str(error).splitlines() or [""])[0][:200] or "raised NotImplementedError"]
        except (Exception, SystemExit) as error:
            said[key] = ["failed", told(error, file)]
    write_said()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
