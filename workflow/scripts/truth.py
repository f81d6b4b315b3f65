"""Rule truth: the exact numbers of every stage of one suite, and how far our own are from them."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from worked_attention.files.artifacts import FORMAT, logged, packed, read_cases, write_json
from worked_attention.referee.bounds.rounding import Boundless
from worked_attention.referee.compare import compare_arrays, own_gates, verdict_on
from worked_attention.referee.truth.whole import truth

with logged(snakemake.log[0]):
    output, verdicts = Path(snakemake.output[0]), {}
    with packed(output / "truth.npz") as put:
        for case, ours in read_cases(snakemake.input):
            try:
                allowed = own_gates(case, ours)
                certified = truth(case, ours)
            except (Boundless, NotImplementedError) as error:  # an array that nothing stands beside
                sys.exit(f"{case['suite']}/{case['name']}: {error}")
            checked = {}
            for name, (exact, radius) in certified.items():
                put(case["name"], name, np.stack([exact, radius], axis=-1))
                known = np.isfinite(radius)
                if not known.all():  # what is not certified accuses nobody, and acquits nobody
                    exact, radius = np.where(known, exact, ours[name]), np.where(known, radius, 0.0)
                checked[name] = compare_arrays(exact, ours[name], replace(allowed[name], bound=allowed[name].bound + radius))
                if checked[name]["verdict"] == "pass" and not known.all():
                    checked[name] |= {"verdict": "undecided", "reason": "is not certified"}
            verdicts[case["name"]] = verdict_on(checked)
    write_json(output / "truth.json", {"format": FORMAT, "cases": verdicts})
