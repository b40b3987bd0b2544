import sys
from pathlib import Path

import pyarrow
import pyarrow.compute
import pytest

import holdover

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import reconnect_acks  # noqa: E402


# Claim: A mechanism in Python gives the captures, events and samples of the same mechanism in Rust, to the byte.
def test_a_mechanism_in_python_equals_its_rust_twin_packet_by_packet(tmp_path, files):
    plain = holdover.Scenario.parse(reconnect_acks.SCENARIO, "three-outages.toml")
    plain.run(out=tmp_path / "none", report=False)
    python = plain.run(out=tmp_path / "python", report=False, mechanisms={"phone": reconnect_acks.ReconnectAcks})
    in_rust = plain.with_({"host.phone.mechanisms": {"reconnect_acks": {}}})
    in_rust.run(out=tmp_path / "rust", report=False)
    none, own, rust = (files(tmp_path / name / "variants") for name in ["none", "python", "rust"])
    assert own == rust, "captures, events and samples"
    assert own != none, "the mechanism does something"
    assert any(name.endswith(".pcapng") for name in own)
    actions = python["base"].actions
    assert [round(t) for t in actions["t_s"]][:2] == [3, 3], actions
    assert {(action["node"], action["mechanism"], action["what"]) for action in actions} == {
        ("phone", "reconnect_acks", "sent ACKs")
    }
    events = pyarrow.table(python["base"].events)
    of_mechanisms = events.filter(pyarrow.compute.equal(events["event"], "mechanism"))
    assert pyarrow.table(actions) == of_mechanisms.select(actions.column_names).replace_schema_metadata()


def test_a_mechanism_changes_drops_keeps_and_has_timers(scenario):
    class Late(holdover.Mechanism):
        """Holds each incoming packet for 50 ms."""

        name = "late"

        def __init__(self):
            self.held = []

        def handle_packet(self, now, direction, packet):
            if direction == "out":
                return "pass"
            self.held.append((now + 50_000_000, packet.copy()))
            self.wake_at(self.held[0][0])
            return "keep"

        def handle_timeout(self, now):
            while self.held and self.held[0][0] <= now:
                self.send(self.held.pop(0)[1], "in")
            if self.held:
                self.wake_at(self.held[0][0])

    class Small(holdover.Mechanism):
        def handle_packet(self, now, direction, packet):
            if direction == "out":
                packet.window = min(packet.window, 4)

    options = {"variants": ["cubic"], "captures": False, "report": False}
    calm = scenario.with_({"link.radio.loss": "0 %", "link.radio.outages.list": [{"at": "20 s", "for": "1 s"}]})
    goodput = {name: calm.run(mechanisms=own, **options).flows["goodput_bps"][0] for name, own in [
        ("plain", {}), ("late", {"phone": Late}), ("small", [("cubic", "phone", Small)]),
    ]}
    rtt = max(calm.run(mechanisms={"phone": Late}, **options)["cubic"].samples["rtt_us"])
    assert rtt > 80_000
    assert goodput["small"] < goodput["plain"] and goodput["late"] < goodput["plain"]


def test_what_a_mechanism_raises_ends_the_run(scenario):
    class Broken(holdover.Mechanism):
        def handle_packet(self, now, direction, packet):
            raise LookupError(f"at {now}")

    class Wrong(holdover.Mechanism):
        def handle_packet(self, now, direction, packet):
            return "perhaps"

    class Early(holdover.Mechanism):
        def handle_packet(self, now, direction, packet):
            self.wake_at(now + 0.02 * 1e9)

    class Sideways(holdover.Mechanism):
        def handle_packet(self, now, direction, packet):
            self.send(packet, "sideways")

    options = {"captures": False, "report": False}
    with pytest.raises(ValueError, match="whole nanoseconds") as raised:
        scenario.run(mechanisms={"phone": Early}, **options)
    assert any(entry.name == "handle_packet" for entry in raised.traceback), "the line that asked for it"
    with pytest.raises(ValueError, match="no direction"):
        scenario.run(mechanisms={"phone": Sideways}, **options)
    with pytest.raises(LookupError, match="at "):
        scenario.run(mechanisms={"phone": Broken}, **options)
    with pytest.raises(ValueError, match="perhaps"):
        scenario.run(mechanisms={"phone": Wrong}, **options)
    with pytest.raises(AttributeError):
        scenario.run(mechanisms={"phone": object}, **options)


def test_a_packet_checks_what_is_set():
    packet = holdover.Packet.pure_ack("10.0.0.1", 1, "10.0.0.2", 2, seq=5, ack=6, window=7, timestamps=(8, 9))
    assert (packet.flags, packet.seq, packet.ack, packet.window, packet.timestamps) == (".", 5, 6, 7, (8, 9))
    packet.flags = "F."
    packet.sack = [(10, 20)]
    assert packet.flags == "F." and packet.sack == [(10, 20)] and packet.seq_len == 1
    with pytest.raises(ValueError, match="no flag"):
        packet.flags = "x"
    with pytest.raises(ValueError, match="at most 4"):
        packet.sack = [(n, n + 1) for n in range(5)]
    with pytest.raises(OverflowError):
        packet.window = 70_000
    with pytest.raises(ValueError, match="no IP address"):
        holdover.Packet.pure_ack("phone", 1, "10.0.0.2", 2, seq=5, ack=6, window=7)


def test_a_mechanism_that_never_lets_time_go_on_is_an_error(scenario):
    class Stuck(holdover.Mechanism):
        def handle_packet(self, now, direction, packet):
            self.wake_at(now)

        def handle_timeout(self, now):
            self.wake_at(now)

    with pytest.raises(ValueError, match="at one instant"):
        scenario.run(mechanisms={"phone": Stuck})
