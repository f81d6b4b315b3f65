"""The suite `blocks`: a kernel that takes queries and keys in blocks is right on every case, and each of its known faults is not."""

import numpy as np
import pytest
from blockwise import FAULTS, kernel
from conftest import ROOT
from shipped import shipped

from worked_attention.referee.handed import handed
from worked_attention.referee.judge import judge_case
from worked_attention.stages.parameters import stage as parameters_of

CASES = shipped("blocks")["cases"]
PARAMETERS = {name: parameters_of(case, ROOT) for name, case in CASES.items()}
READY = {name: handed(case, PARAMETERS[name]) for name, case in CASES.items()}

ways = pytest.mark.parametrize(("block", "dtype"), [(block, dtype) for block in (16, 64) for dtype in ("float64", "float32")])


@ways
@pytest.mark.parametrize("name", CASES)
def test_the_right_kernel_is_right(name: str, block: int, dtype: str):
    sent = {"contexts": kernel(CASES[name], READY[name], block, dtype)}
    assert sent["contexts"].dtype == dtype
    result = judge_case(CASES[name], PARAMETERS[name], sent)
    assert (result["verdict"], result["contract"]) == ("right", dtype), result["worst"]


@ways
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_wrong_somewhere(fault: str, block: int, dtype: str):
    noticed = []
    for name, case in CASES.items():
        sent = kernel(case, READY[name], block, dtype, fault)
        if np.array_equal(sent, kernel(case, READY[name], block, dtype)):
            continue  # the fault does nothing here
        if judge_case(case, PARAMETERS[name], {"contexts": sent})["verdict"] == "wrong":
            noticed.append(name)
    print(f"{fault}, {dtype}, blocks of {block}: {', '.join(noticed)}")
    assert noticed
