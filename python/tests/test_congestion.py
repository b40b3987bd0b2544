# Claim: A congestion control in Python sets the window, and Reno in Python gives the captures, events and samples of the stack's
# own Reno, to the byte, through losses and an outage. A mechanism runs at a router.

import sys
from pathlib import Path

import pytest

import holdover

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import reno  # noqa: E402


def test_a_congestion_control_in_python_equals_its_rust_twin_packet_by_packet(tmp_path, files):
    scenario = holdover.Scenario.parse(reno.SCENARIO, "reno.toml")
    scenario.run(out=tmp_path / "rust", report=False)
    scenario.run(out=tmp_path / "python", report=False, congestion={"server": reno.Reno})
    rust, own = (files(tmp_path / name / "variants") for name in ["rust", "python"])
    assert any(name.endswith(".pcapng") for name in own)
    assert own == rust, "captures, events and samples"
    flows = scenario.run(captures=False, report=False).flows
    assert flows["timeouts"][0] > 0 and flows["recoveries"][0] > 3, "it was put to the test"


def test_the_window_is_what_the_congestion_control_sets(tmp_path):
    calls = []

    class Fixed(holdover.CongestionControl):
        def on_ack(self, now, state):
            calls.append((now, state.acked, state.in_flight, state.mss, state.srtt, state.min_rtt, state.state))
            if state.state in ("open", "disorder"):
                state.cwnd = 7

    class Cubic(holdover.CongestionControl):
        """Sets nothing: the window stays."""

    calm = holdover.Scenario.parse(reno.SCENARIO, "reno.toml").with_({"link.radio.loss": "0 %"})
    fixed = calm.run(captures=False, report=False, congestion=[("reno", "server", Fixed)])
    windows = [cwnd for cwnd, state in zip(fixed["reno"].samples["snd_cwnd"], fixed["reno"].samples["ca_state"]) if state == "open"]
    assert windows.count(7) > len(windows) * 0.8, windows
    acked = sum(call[1] for call in calls)
    assert 5_500 < acked < 6_500, "8 MB in segments of 1,448 bytes and those sent again"
    assert all(call[3] == 1448 and call[2] >= 0 for call in calls)
    assert min(call[5] for call in calls if call[5]) >= 50_000_000, "50 ms there and back"
    still = calm.run(captures=False, report=False, congestion={"server": Cubic})
    # Loss recovery by proportional rate reduction (RFC 6937) controls the window alone.
    samples = still["reno"].samples
    assert max(cwnd for cwnd, state in zip(samples["snd_cwnd"], samples["ca_state"]) if state == "open") <= 10


def test_what_a_congestion_control_raises_ends_the_run(tmp_path):
    class Broken(holdover.CongestionControl):
        def on_ack(self, now, state):
            raise RuntimeError("no window")

    scenario = holdover.Scenario.parse(reno.SCENARIO, "reno.toml")
    with pytest.raises(RuntimeError, match="no window"):
        scenario.run(out=tmp_path / "broken", congestion={"server": Broken})
    assert not (tmp_path / "broken" / "summary.json").exists()
    with pytest.raises(ValueError, match='no host "radio"'):
        scenario.run(congestion={"radio": Broken})


ROUTER = reno.SCENARIO.replace(
    'host = [{ name = "phone" }, { name = "server" }]',
    'host = [{ name = "phone" }, { name = "server" }]\nrouter = [{ name = "base" }]',
).replace('between = ["phone", "server"]', 'between = ["phone", "base"]').replace(
    "[[flow]]",
    '[[link]]\nname = "wire"\nbetween = ["base", "server"]\nrate = "100 Mbit/s"\ndelay = "5 ms"\n\n[[flow]]',
)


def test_a_mechanism_stands_at_a_router(tmp_path):
    class Count(holdover.Mechanism):
        name = "count"
        seen: dict[str, int] = {}

        def handle_packet(self, now, direction, packet):
            self.seen[direction] = self.seen.get(direction, 0) + 1
            if direction == "in" and packet.is_pure_ack:
                packet.window = min(packet.window, 8)

    scenario = holdover.Scenario.parse(ROUTER, "router.toml")
    plain = scenario.run(captures=False, report=False)
    clamped = scenario.run(captures=False, report=False, mechanisms={"base": Count})
    # "out" is the direction towards the mobile host, "in" the direction from it.
    assert Count.seen["out"] > 2_000 and Count.seen["in"] > 1_000
    assert clamped.flows["goodput_bps"][0] < 0.7 * plain.flows["goodput_bps"][0]


# Claim: A mechanism in Python at a router receives the presence of mobile hosts and failed attempts of a link with ARQ, and does
# not affect the router's other mechanisms: captures, events and samples are the same as without it.
def test_a_mechanism_at_a_router_hears_where_mobile_hosts_are_beside_those_of_the_scenario(files, tmp_path):
    class Watch(holdover.Mechanism):
        name = "watch"
        heard: list[tuple[int, str, holdover.Presence]] = []
        failed: list[holdover.Packet] = []

        def handle_mobile(self, now, mobile, presence):
            self.heard.append((now, mobile, presence))

        def handle_failed_attempt(self, now, packet):
            self.failed.append(packet)

    outage = {"list": [{"at": "1 s", "for": "500 ms"}]}
    scenario = holdover.Scenario.parse(ROUTER, "router.toml").with_({"link.radio.outages": outage})
    scenario.run(captures=False, report=False, mechanisms={"base": Watch})
    addresses = sorted({mobile for _, mobile, _ in Watch.heard})
    away, present = (holdover.Presence(kind) for kind in ["away", "present"])
    assert len(addresses) == 2, "IPv4 and IPv6"
    assert sorted(Watch.heard, key=lambda heard: heard[:2]) == [
        (at, address, presence) for at, presence in [(1_000_000_000, away), (1_500_000_000, present)] for address in addresses
    ]
    assert not Watch.failed
    repeating = scenario.with_({"link.radio.arq": {"attempts": 3, "timeout": "5 ms"}, "link.radio.loss": "5 %"})
    snoop = repeating.with_({"router.base.mechanisms": {"snoop": {}}})
    snoop.run(out=tmp_path / "snoop", report=False)
    snoop.run(out=tmp_path / "both", report=False, mechanisms={"base": Watch})
    assert Watch.failed and all(packet.dst in addresses for packet in Watch.failed)
    assert files(tmp_path / "snoop" / "variants") == files(tmp_path / "both" / "variants"), "snoop is still there"

    class Broken(holdover.Mechanism):
        def handle_mobile(self, now, mobile, presence):
            raise LookupError(mobile)

    with pytest.raises(LookupError, match="10.0.0"):
        scenario.run(captures=False, report=False, mechanisms={"base": Broken})
    snoops = snoop.run(report=False, captures=False)[snoop.variants[0]]
    assert "snoop" in snoops.actions["mechanism"]
