"""What several tests need."""

import pytest

import holdover

SCENARIO = """title = "A short outage"
seed = 3
time_limit = "30 s"

[[host]]
name = "phone"

[[host]]
name = "server"

[[link]]
name = "radio"
between = ["phone", "server"]
rate = "4 Mbit/s"
delay = "15 ms"
queue_limit = "40 packets"
loss = "1 %"
outages = { list = [{ at = "500 ms", for = "1500 ms" }], queued = "dropped", in_flight = "dropped" }

[[flow]]
name = "download"
from = "server"
to = "phone"
opener = "phone"
bulk = "300 kB"

[[variant]]
name = "cubic"
set = { stack = "linux-6-cubic" }

[[variant]]
name = "bsd"
set = { stack = "reno-bsd" }
"""

SWEEP = """
[sweep]
axis = [{ path = "link.radio.loss", label = "loss", values = ["0.5 %", "2 %"] }]
replicate = { relative_error = "8 %", min = 4, max = 20 }
"""


@pytest.fixture
def scenario():
    return holdover.Scenario.parse(SCENARIO, "short.toml")


@pytest.fixture
def swept():
    return holdover.Scenario.parse(SCENARIO + SWEEP, "short.toml")


@pytest.fixture
def files():
    """The files below a directory that have to be the same whenever a run or sweep is made."""

    def read(directory):
        varying = {"manifest.json", "journal.jsonl"}
        found = (path for path in directory.rglob("*") if path.is_file() and path.name not in varying)
        return {str(path.relative_to(directory)): path.read_bytes() for path in found}

    return read
