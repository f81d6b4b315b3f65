"""Rule comparison: our stages against every reference, some queries of a large case at a time, and the claims of every case against our
stages."""

import sys
from pathlib import Path

import numpy as np

from worked_attention.files.artifacts import read_looked_at, read_parts, read_suite, stage_folders
from worked_attention.files.formats import FORMAT, read_json, write_json
from worked_attention.files.jobs import logged
from worked_attention.files.packed import Packed
from worked_attention.referee.arithmetics import Ours, compared, compared_together
from worked_attention.referee.claims import check_claim
from worked_attention.stages.catalogue import CATALOGUE, STAGES, computed
from worked_attention.stages.rows import WHY, looked_at

NOTHING = {"arrays": {}, "first_divergence": None}
WHOLE = "torch.manual"  # which shows every array of the cases that it runs


def exposed(results: dict[str, dict]) -> set[str]:
    """The arrays that a reference shows; truth is none."""
    shown = [result["arrays"] for reference, result in results.items() if reference != "truth"]
    return {name.split(".")[-1] for arrays in shown for name, found in arrays.items() if found["verdict"] != "not exposed"}


def claimed(case: dict, name: str) -> np.ndarray:
    """Our array `name` of a case."""
    return read_looked_at(Path(snakemake.input[CATALOGUE[name].stage]), case, name)


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
    for case in read_suite(given["parameters"])[1]:
        looked, found = looked_at(case), {}
        for places, part, arrays in read_parts(stage_folders(snakemake.input), case):
            ours = Ours(part, arrays, snakemake.params.gates)
            for reference in [name for name in theirs if said[name]["installed"] and case["name"] not in said[name]["unsupported"]]:
                shown = theirs[reference].rows(case["name"], looked["dims"]["Lq"], places)
                result = compared(ours, shown, said[reference]["convention"].get(case["name"]))
                found.setdefault(reference, []).append(result)
        results = {"truth": exact[case["name"]]} if exact else {}
        for reference, words in said.items():
            if not words["installed"]:
                results[reference] = {"verdict": "not installed", **NOTHING}
            elif reason := words["unsupported"].get(case["name"]):
                results[reference] = {"verdict": "unsupported", "reason": reason, **NOTHING}
            else:
                results[reference] = compared_together(found[reference], computed(looked))
        if WHOLE in results and results[WHOLE]["arrays"] and (alone := set(computed(looked)) - exposed(results)):
            sys.exit(f"{case['suite']}/{case['name']}: no independent reference shows {', '.join(sorted(alone))}")
        diverging = [{"reference": r, **c["first_divergence"]} for r, c in results.items() if c["first_divergence"]]
        claims = [(claim, check_claim(claim, claimed(case, claim["array"]))) for claim in case["claims"]]
        write_json(
            output / f"{case['name']}.json",
            {
                "format": FORMAT,
                "suite": case["suite"],
                "case": case["name"],
                "dtype": case["dtype"],
                **({"looked_at": looked["rows"] | {"why": WHY}} if case["sample"] else {}),
                "references": results,
                "first_divergence": min(diverging, key=lambda d: STAGES.index(d["stage"]), default=None),
                "claims": [{"array": claim["array"], **value} for claim, checked in claims for value in checked],
            },
        )
