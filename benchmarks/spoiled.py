"""One array of each stage spoiled by random numbers, in every shipped case: each gets its verdict, and none a name.

    python benchmarks/spoiled.py            # some minutes; prints what was called by the name of a mistake, and how many there were

What is random equals no known mistake, no pair of two and no relation; a name for it is a wrong name.
"""

import sys
import warnings
import zlib
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "workflow" / "scripts"))

from worked_attention.cases.suites import load_config, load_suites  # noqa: E402
from worked_attention.referee.diagnosis import Diagnoser  # noqa: E402
from worked_attention.referee.judge import judge_case  # noqa: E402
from worked_attention.stages.catalogue import STAGES  # noqa: E402
from worked_attention.stages.dtypes import DTYPES  # noqa: E402
from worked_attention.stages.whole import compute  # noqa: E402

PAIRS = 300  # of mistakes, tried on each spoiled array


def spoiled(case: dict, right: dict[str, np.ndarray]) -> list[str]:
    """What is wrong with the verdicts on the last array of each stage with normal numbers added, sent alone and beside all earlier ones.

    case: resolved. right: all its arrays. Returns a sentence for each that is not wrong, or that has a name.
    """
    given = {name: right[name] for name in case["arrays"]["parameters"]}
    draw, said = np.random.default_rng(zlib.crc32(case["name"].encode())), []
    for stage in STAGES[1:]:
        shown = [name for name in case["arrays"][stage] if name != "keep"]
        if not shown or right[shown[-1]].size < 4:  # so few numbers may well equal something
            continue
        wrong = right[shown[-1]].astype(np.float64) + draw.normal(size=right[shown[-1]].shape)
        clear = bool((np.abs(right[shown[-1]]) < 1e9).all()) and not DTYPES[case["dtype"]].half  # else it may be lost in a rounding
        before = {name: right[name] for s in STAGES[1 : STAGES.index(stage)] for name in case["arrays"][s]}
        for sent in ({shown[-1]: wrong}, before | {name: right[name] for name in shown[:-1]} | {shown[-1]: wrong}):
            found = judge_case(case, given, sent, Diagnoser(pairs=PAIRS))
            if found["verdict"] != "wrong" and clear:
                said.append(f"{case['suite']}/{case['name']} {shown[-1]}: {found['verdict']}")
            if found["diagnosis"]:
                said.append(f"{case['suite']}/{case['name']} {shown[-1]}: {found['diagnosis']['sentence']}")
    return said


def main() -> None:
    warnings.simplefilter("ignore")
    folder, said, cases = ROOT / "config" / "suites", [], 0
    for content in load_suites(load_config(ROOT / "config" / "config.yaml", {}), folder).values():
        for case in content["cases"].values():
            if not case["torch_draws"] and max(case["shapes"]["masked"]) <= 128:
                said += spoiled(case, compute(case, folder))
                cases += 1
    print(*said, sep="\n")
    print(f"{cases} cases, {len(said)} with a name for what has none, or without a verdict")


if __name__ == "__main__":
    main()
