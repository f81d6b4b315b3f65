"""Rule comparison: our stages against every reference, and the claims of every case against our stages."""

from pathlib import Path

from worked_attention.files.artifacts import logged, read_arrays, read_cases, read_json, write_json
from worked_attention.referee.arithmetics import Ours, compared
from worked_attention.referee.compare import check_claim
from worked_attention.references.registry import LIBRARIES
from worked_attention.stages.catalogue import STAGES

NOTHING = {"arrays": {}, "first_divergence": None}
NOT_INSTALLED = {"verdict": "not installed", **NOTHING}

with logged(snakemake.log[0]):
    given = dict(snakemake.input.items())
    output = Path(snakemake.output[0])
    output.mkdir(parents=True, exist_ok=True)
    references = {f"{lib}.{name}": Path(given[lib]) / name for lib in LIBRARIES if lib in given for name in LIBRARIES[lib]}
    said = {reference: read_json(folder / "said.json") for reference, folder in references.items()}
    for case, arrays in read_cases(snakemake.input):
        ours = Ours(case, arrays, snakemake.params.gates)
        results = {"truth": read_json(Path(given["truth"]) / case["name"] / "truth.json")} if "truth" in given else {}
        for reference, folder in references.items():
            reason, other = (said[reference][kind].get(case["name"]) for kind in ("unsupported", "convention"))
            if not said[reference]["installed"]:
                results[reference] = NOT_INSTALLED
            elif reason:
                results[reference] = {"verdict": "unsupported", "reason": reason, **NOTHING}
            else:
                theirs = read_arrays(folder / case["name"])
                results[reference] = compared(ours, theirs, other)
        results |= {f"{library}.{name}": NOT_INSTALLED for library in snakemake.params.missing for name in LIBRARIES[library]}
        diverging = [{"reference": r, **c["first_divergence"]} for r, c in results.items() if c["first_divergence"]]
        claims = [{"array": claim["array"], **value} for claim in case["claims"] for value in check_claim(claim, arrays[claim["array"]])]
        write_json(
            output / f"{case['name']}.json",
            {
                "suite": case["suite"],
                "case": case["name"],
                "dtype": case["dtype"],
                "references": results,
                "first_divergence": min(diverging, key=lambda d: STAGES.index(d["stage"]), default=None),
                "claims": claims,
            },
        )
