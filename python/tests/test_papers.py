import pytest

import holdover


def test_papers_have_experiments_claims_and_scenarios():
    names = [paper.name for paper in holdover.papers()]
    assert {"freeze-tcp", "m-tcp"} <= set(names)
    freeze = holdover.paper("freeze-tcp")
    assert freeze.claims and all(claim.experiment in freeze.experiments for claim in freeze.claims)
    for paper in holdover.papers():
        for name in {name for names in paper.experiments.values() for name in names}:
            assert paper.scenario(name).variants, f"{paper.name}: {name}"
    scenario = next(names[0] for names in freeze.experiments.values() if names)
    assert freeze.scenario(scenario).variants
    with pytest.raises(KeyError, match="there are"):
        holdover.paper("cat-tcp")
    with pytest.raises(KeyError, match="it has"):
        freeze.reproduce(["cat"])
    with pytest.raises(KeyError, match='"cat"'):
        freeze.reproduce("cat")
    with pytest.raises(ValueError, match="settings is at least 1"):
        freeze.fit(settings=0)
    with pytest.raises(ValueError, match="jobs lies between"):
        freeze.reproduce("table-2", jobs=0)


def test_a_fit_keeps_its_runs_when_it_is_stopped(tmp_path):
    class Enough(Exception):
        pass

    def stop(name, done, expected):
        if done >= 3:
            raise Enough

    with pytest.raises(Enough):
        holdover.paper("m-tcp").fit(settings=1, runs=1, out=tmp_path / "fit", progress=stop)
    kept = sum(len(path.read_text().splitlines()) - 1 for path in (tmp_path / "fit").rglob("journal.jsonl"))
    assert kept >= 3
