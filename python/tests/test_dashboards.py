"""The dashboards in dist/grafana, against the part of Grafana's dashboard model that they use."""

# Claim: Dashboards fit a JSON schema of the part of Grafana's model that they use, which was written for this test; their panels
# do not overlap, and their variables exist.

import json
import re
from itertools import combinations
from pathlib import Path

import jsonschema_rs
import pytest

REPOSITORY = Path(__file__).parents[2]
DASHBOARDS = sorted((REPOSITORY / "dist/grafana").glob("*.json"))
SCHEMA = jsonschema_rs.validator_for(json.loads(Path(__file__).with_name("dashboard.schema.json").read_text()))


@pytest.fixture(params=DASHBOARDS, ids=lambda path: path.stem)
def dashboard(request):
    return json.loads(request.param.read_text())


def test_there_is_one_for_each_daemon_with_metrics():
    assert [path.stem for path in DASHBOARDS] == ["holdover-agent", "holdover-gateway", "holdover-hip"]


def test_a_dashboard_fits_the_schema_of_the_part_of_the_model_that_it_uses(dashboard):
    errors = [f"{list(error.instance_path)}: {error.message}" for error in SCHEMA.iter_errors(dashboard)]
    assert errors == []
    # The schema is strict: a field of another name or kind is an error.
    for broken in [{"fieldconfig": {}}, {"gridPos": {"x": 24, "y": 0, "w": 1, "h": 1}}, {"type": "graph"}]:
        changed = {**dashboard, "panels": [{**dashboard["panels"][0], **broken}]}
        assert not SCHEMA.is_valid(changed), broken


def test_panels_lie_side_by_side_and_have_names_of_their_own(dashboard):
    panels = dashboard["panels"]
    ids = [panel["id"] for panel in panels]
    assert len(set(ids)) == len(ids)
    for panel in panels:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24, panel["title"]
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references), panel["title"]
    for one, other in combinations(panels, 2):
        a, b = one["gridPos"], other["gridPos"]
        apart = (
            a["x"] + a["w"] <= b["x"]
            or b["x"] + b["w"] <= a["x"]
            or a["y"] + a["h"] <= b["y"]
            or b["y"] + b["h"] <= a["y"]
        )
        assert apart, (one["title"], other["title"])


def test_queries_use_variables_that_there_are(dashboard):
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    # Grafana's own begin with two underscores.
    used = {
        name
        for name in re.findall(r"\$\{?(\w+)", json.dumps([dashboard["panels"], dashboard["templating"]]))
        if not name.startswith("__")
    }
    assert used == variables
