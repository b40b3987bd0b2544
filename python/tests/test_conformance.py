import os

import pytest

import holdover

PROGRAM = os.environ.get("HOLDOVER_BIN")

needs_program = pytest.mark.skipif(PROGRAM is None, reason="HOLDOVER_BIN names no program")


@needs_program
def test_the_kernel_is_measured_beside_the_profiles():
    measured = holdover.conformance(only="wake: 3 s: nothing, cubic")
    cases = [case for experiment in measured.report["experiments"] for case in experiment["cases"]]
    assert [case["sender"] for case in cases] and all(case["kernel"] for case in cases)
    assert measured.is_sound == (measured.report["differ"] == 0 and measured.report["failed"] == 0)


@needs_program
def test_a_grid_has_cells_with_runs():
    measured = holdover.conformance("agent", only="cubic, download, 300 ms, plain", repeat=1)
    assert measured.report["cells"] and all(len(cell["runs"]) == 1 for cell in measured.report["cells"])


@needs_program
def test_a_refusal_has_the_reason_of_the_program():
    with pytest.raises(holdover.HoldoverError, match='no experiment has "turtle" in its name'):
        holdover.conformance(only="turtle")
    with pytest.raises(holdover.HoldoverError, match="--jobs"):
        holdover.conformance(jobs=0)


def test_what_cannot_be_is_refused():
    with pytest.raises(holdover.HoldoverError, match="cannot be started"):
        holdover.conformance(program="/does/not/exist")
    with pytest.raises(holdover.HoldoverError, match="status 0"):
        holdover.conformance(program="true")
    with pytest.raises(ValueError, match="there are agent, agent-links"):
        holdover.conformance("long")
    with pytest.raises(ValueError, match="for grids"):
        holdover.conformance(repeat=2)
