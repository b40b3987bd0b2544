import json
import xml.etree.ElementTree as ElementTree

import pytest

import holdover


def test_a_capture_is_explained(scenario, tmp_path):
    run = scenario.run(out=tmp_path / "run", report=False, variants=["cubic"])
    told = holdover.explain(run["cubic"].captures["server-eth0"])
    assert len(told) == 1
    one = told[0]
    assert one.bytes == 300_000 and one.place == "at the sender"
    assert one.retransmissions > 0
    assert 0.03 <= one.rtt_s < 0.04
    assert len(one.outages) == 1 and one.outages[0][0] == pytest.approx(0.5, abs=0.2)
    assert sum(one.spent_s.values()) == pytest.approx(one.end_s - one.begin_s)
    assert one.spent_s["outage"] > 1.0
    known = holdover.explain(run["cubic"].captures["server-eth0"], outages=[(0.5, 2.0)])[0]
    assert known.outages == [(0.5, 2.0, True)] and known.spent_s["outage"] == pytest.approx(1.5)
    none = holdover.explain(run["cubic"].captures["server-eth0"], only_given=True)[0]
    assert none.outages == [] and none.spent_s["outage"] == 0
    whole = run["cubic"].captures["server-eth0"].read_bytes()
    (tmp_path / "torn.pcapng").write_bytes(whole[: len(whole) * 3 // 4])
    with pytest.warns(UserWarning, match="what came before counts"):
        torn = holdover.explain(tmp_path / "torn.pcapng")
    assert 0 < torn[0].segments < one.segments
    with pytest.raises(ValueError, match="cannot be"):
        holdover.explain(run["cubic"].captures["server-eth0"], outages=[(2.0, 0.5)])
    with pytest.raises(holdover.HoldoverError, match="neither a pcapng nor a pcap"):
        holdover.explain(run.directory / "summary.json")


def test_a_link_replays_what_a_capture_met(scenario, tmp_path):
    long = scenario.with_({"flow.download.bulk": "4 MB", "link.radio.loss": "0 %"})
    run = long.run(out=tmp_path / "run", report=False, variants=["cubic"])
    (tmp_path / "link.csv").write_text(holdover.traces.from_capture(run["cubic"].captures["phone-eth0"], interval_s=0.5))
    (tmp_path / "again.toml").write_text(
        long.to_toml().replace('rate = "4 Mbit/s"', 'forward = { trace = "link.csv" }\nrate = "4 Mbit/s"')
    )
    text = (tmp_path / "link.csv").read_text()
    assert text.splitlines()[1] == "t,rate,rtt,loss,up"
    ups = [line.rsplit(",", 1)[1] for line in text.splitlines()[2:]]
    assert "0" in ups and ups[-1] == "1"
    rates = [float(line.split(",")[1]) for line in text.splitlines()[2:]]
    assert max(rates) == pytest.approx(4e6, rel=0.1)
    with pytest.raises(holdover.HoldoverError, match="interval"):
        holdover.traces.from_capture(run["cubic"].captures["phone-eth0"], interval_s=0)


def test_a_run_is_exported_for_other_programs(scenario, tmp_path):
    run = scenario.run(out=tmp_path / "run", report=False, variants=["cubic"], export=["qlog", "xplot", "flowmon"])
    directory = run["cubic"].directory
    records = (directory / "qlog" / "download-server.sqlog").read_text().split("\x1e")[1:]
    events = [json.loads(record) for record in records]
    assert events[0]["trace"]["vantage_point"] == {"name": "server", "type": "server"}
    assert {event["name"] for event in events[1:]} >= {"tcp:packet_sent", "tcp:packet_received", "tcp:recovery_metrics_updated"}
    assert (directory / "xplot" / "download.xpl").read_text().endswith("\ngo\n")
    # The file is parsed as ns-3's own script parses it.
    monitor = ElementTree.parse(directory / "flowmon" / "flowmon.xml").getroot()
    flows = {flow.get("flowId"): flow for flow in monitor.findall("FlowStats/Flow")}
    (classifier,) = monitor.findall("Ipv4FlowClassifier")
    assert {flow.get("flowId") for flow in classifier.findall("Flow")} == set(flows) == {"1", "2"}
    data = flows["2"]
    assert int(data.get("rxBytes")) > 300_000
    mean = float(data.get("delaySum")[:-2]) / int(data.get("rxPackets")) * 1e-9
    assert 0.015 < mean < 0.2
    assert [float(item.get("start")) for item in data.findall("flowInterruptionsHistogram/bin")]
    probes = monitor.findall("FlowProbes/FlowProbe")
    assert len(probes) == 2
    assert probes[1].find("FlowStats[@flowId='2']").get("delayFromFirstProbeSum") == "+0.0ns"
    with pytest.raises(ValueError, match="unknown format"):
        scenario.run(export=["pdf"])
