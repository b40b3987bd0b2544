import pytest

import holdover


def test_papers_have_experiments_claims_and_scenarios():
    names = [paper.name for paper in holdover.papers()]
    assert {"freeze-tcp", "m-tcp"} <= set(names)
    freeze = holdover.paper("freeze-tcp")
    assert freeze.claims and all(claim.experiment in freeze.experiments for claim in freeze.claims)
    scenario = next(name for name in freeze.experiments.values() if name)
    assert freeze.scenario(scenario).variants
    with pytest.raises(KeyError, match="there are"):
        holdover.paper("cat-tcp")
    with pytest.raises(KeyError, match="it has"):
        freeze.reproduce(["cat"])
