import json
import pickle
import tomllib
from pathlib import Path

import jsonschema_rs
import pytest

import holdover
from conftest import SCENARIO

REPOSITORY = Path(__file__).parents[2]


def test_a_scenario_is_changed_by_path_and_checked(scenario):
    scenario["link.radio.rate"] = "5 Mbit/s"
    assert scenario["link.radio.rate"] == "5 Mbit/s"
    assert scenario["link.0.delay"] == "15 ms"
    changed = scenario.with_({"link.radio.delay": "1 ms"}, seed=9)
    assert (changed.seed, scenario.seed) == (9, 3)
    assert scenario["link.radio.delay"] == "15 ms"
    with pytest.raises(KeyError, match="there are radio"):
        scenario["link.cable"]
    for path, value, part in [
        ("link.radio.rate", "5 apples", "5 apples"),
        ("link.cable.rate", "5 Mbit/s", "cable"),
        ("link.radio.speed", "5 Mbit/s", "speed"),
    ]:
        with pytest.raises(holdover.ScenarioError, match=part) as caught:
            scenario[path] = value
        assert caught.value.file == "--set" and caught.value.line == 1
    assert scenario["link.radio.rate"] == "5 Mbit/s", "a refused change changes nothing"
    with pytest.raises(TypeError, match="cannot hold a object"):
        scenario["link.radio.rate"] = object()


def test_an_error_has_its_place():
    bad = SCENARIO.replace('rate = "4 Mbit/s"', 'rate = "4 apples"')
    with pytest.raises(holdover.ScenarioError) as caught:
        holdover.Scenario.parse(bad, "bad.toml")
    error = caught.value
    assert (error.file, error.line, error.field, error.kind) == ("bad.toml", 14, "link.radio.rate", "bad-value")
    assert "4 apples" in error.found and error.column > 0 and 'rate = "4 apples"' in error.report
    assert isinstance(error, ValueError)
    with pytest.raises(holdover.ScenarioError, match="train-tunnel"):
        holdover.Scenario.open("train-tunnnel")


def test_a_scenario_is_built_of_a_dictionary_and_goes_through_pickle(scenario):
    built = holdover.Scenario.build(scenario.to_dict(), name="short.toml")
    assert built.to_toml() == scenario.to_toml()
    assert built.variants == ["cubic", "bsd"]
    # A pickled scenario includes its trace.
    lte = holdover.Scenario.open("lte-trace")
    again = pickle.loads(pickle.dumps(lte))
    assert (again.to_toml(), again.name) == (lte.to_toml(), lte.name)
    assert "<h3>" in lte._repr_html_()


def test_the_schema_accepts_what_the_reader_accepts_and_checks_the_values_of_variants():
    schema = jsonschema_rs.Draft202012Validator(json.loads(holdover.schema()))
    files = [path for path in sorted((REPOSITORY / "scenarios").glob("*.toml"))]
    files += [path for path in sorted((REPOSITORY / "experiments").glob("*/*.toml")) if "[[link]]" in path.read_text()]
    assert len(files) > 15
    for path in files:
        problems = [f"{error.instance_path}: {error.message}" for error in schema.iter_errors(tomllib.loads(path.read_text()))]
        assert problems == [], path
    for path, value in [
        ("link.radio.rate", "5 apples"),
        ("link.radio.speed", "5 Mbit/s"),
        ("stack", "windows-95"),
        ("flow.download.count", "three"),
        ("link.*.loss", True),
    ]:
        changed = tomllib.loads(SCENARIO)
        assert list(schema.iter_errors(changed)) == []
        changed["variant"][0]["set"] = {path: value}
        assert list(schema.iter_errors(changed)) != [], (path, value)
