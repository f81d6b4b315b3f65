"""Rule comparison: our stages against every reference, and the claims of every case against our stages."""

import sys
from pathlib import Path

from worked_attention.files.artifacts import FORMAT, Packed, logged, read_cases, read_json, write_json
from worked_attention.referee.arithmetics import Ours, compared
from worked_attention.referee.claims import check_claim
from worked_attention.stages.catalogue import STAGES
from worked_attention.stages.rows import WHY, partial

NOTHING = {"arrays": {}, "first_divergence": None}
WHOLE = "torch.manual"  # which shows every array of the cases that it runs


def exposed(results: dict[str, dict]) -> set[str]:
    """The arrays that a reference shows; truth is none."""
    shown = [result["arrays"] for reference, result in results.items() if reference != "truth"]
    return {name.split(".")[-1] for arrays in shown for name, found in arrays.items() if found["verdict"] != "not exposed"}


with logged(snakemake.log[0]):
    given = dict(snakemake.input.items())
    output = Path(snakemake.output[0])
    output.mkdir(parents=True, exist_ok=True)
    exact = read_json(Path(given["truth"], "truth.json"))["cases"] if "truth" in given else {}
    theirs, said = {}, dict.fromkeys(snakemake.params.references, {"installed": False})
    for reference in said:
        library, name = reference.split(".")
        if library in given:
            theirs[reference] = Packed(Path(given[library], f"{name}.npz"))
            said[reference] = read_json(Path(given[library], f"{name}.json"))
    for case, arrays in read_cases(snakemake.input):
        ours = Ours(case, arrays, snakemake.params.gates)
        results = {"truth": exact[case["name"]]} if exact else {}
        for reference, words in said.items():
            if not words["installed"]:
                results[reference] = {"verdict": "not installed", **NOTHING}
            elif reason := words["unsupported"].get(case["name"]):
                results[reference] = {"verdict": "unsupported", "reason": reason, **NOTHING}
            else:
                results[reference] = compared(ours, theirs[reference][case["name"]], words["convention"].get(case["name"]))
        if WHOLE in results and results[WHOLE]["arrays"] and (alone := set(arrays) - set(case["arrays"]["parameters"]) - exposed(results)):
            sys.exit(f"{case['suite']}/{case['name']}: no independent reference shows {', '.join(sorted(alone))}")
        diverging = [{"reference": r, **c["first_divergence"]} for r, c in results.items() if c["first_divergence"]]
        claims = [{"array": claim["array"], **value} for claim in case["claims"] for value in check_claim(claim, arrays[claim["array"]])]
        write_json(
            output / f"{case['name']}.json",
            {
                "format": FORMAT,
                "suite": case["suite"],
                "case": case["name"],
                "dtype": case["dtype"],
                **({"looked_at": case["rows"] | {"why": WHY}} if partial(case) else {}),
                "references": results,
                "first_divergence": min(diverging, key=lambda d: STAGES.index(d["stage"]), default=None),
                "claims": claims,
            },
        )
