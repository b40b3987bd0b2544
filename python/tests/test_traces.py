# Claim: Measurements of 4G, 5G and Starlink become tables for links.

import json

import pytest

import holdover
from conftest import SCENARIO
from holdover import traces

# The columns and values of the data set of 2020, cut to six rows: one idle, one without a value, one written twice.
GNETTRACK = """Timestamp,Longitude,Latitude,Speed,Operatorname,CellID,NetworkMode,RSRP,RSRQ,SNR,CQI,RSSI,DL_bitrate,UL_bitrate,State,PINGAVG
2019.12.16_13.40.04,-8.39,51.88,0,B,11,5G,-90,-12,9.0,10,-,20000,100,D,-
2019.12.16_13.40.05,-8.39,51.88,0,B,11,5G,-90,-12,9.0,10,-,50,0,I,-
2019.12.16_13.40.06,-8.39,51.88,0,B,11,LTE,-95,-13,5.0,8,-,-,-,D,-
2019.12.16_13.40.07,-8.39,51.88,0,B,12,LTE,-95,-13,5.0,8,-,0,0,D,-
2019.12.16_13.40.08,-8.39,51.88,0,B,12,LTE,-95,-13,5.0,8,-,1,1,D,-
2019.12.16_13.40.08,-8.39,51.88,0,B,12,LTE,-95,-13,5.0,8,-,8000,40,D,-
"""

GHENT = """1453121790686 250 51.0386 3.7312 125000 1000
1453121791690 1254 51.0386 3.7312 0 1004
1453121792686 2250 51.0387 3.7313 500000 996
"""


def test_a_log_of_gnettrack_becomes_a_trace_that_a_link_takes(tmp_path):
    (tmp_path / "log.csv").write_text(GNETTRACK)
    text = traces.from_gnettrack(tmp_path / "log.csv")
    assert text.splitlines()[1:] == [
        "t,rate,up",
        "0.000000,20000000,1",
        "3.000000,1000,0",
        "4.000000,8000000,1",
        "5.000000,8000000,1",
    ]
    (tmp_path / "link.csv").write_text(text)
    with_trace = SCENARIO.replace('rate = "4 Mbit/s"\n', 'trace = "link.csv"\n').split("outages")[0] + SCENARIO.split("}\n", 1)[1]
    scenario = holdover.Scenario.parse(with_trace, "traced.toml", tmp_path)
    run = scenario.run(variants=["cubic"], captures=False, report=False)
    assert run.flows["status"] == ["completed"]
    assert traces.from_gnettrack(tmp_path / "log.csv", "up").splitlines()[2] == "0.000000,100000,1"


def test_a_log_of_ghent_becomes_a_trace(tmp_path):
    (tmp_path / "report_car_0001.log").write_text(GHENT)
    lines = traces.from_ghent(tmp_path / "report_car_0001.log").splitlines()
    assert lines[1:] == ["t,rate,up", "0.000000,1000000,1", "1.000000,1000,0", "2.004000,4016064,1", "3.008000,4016064,1"]


def test_what_is_no_such_log_is_refused_with_its_place(tmp_path):
    (tmp_path / "bad").write_text("a,b\n1,2\n")
    with pytest.raises(holdover.HoldoverError, match="Timestamp"):
        traces.from_gnettrack(tmp_path / "bad")
    with pytest.raises(holdover.HoldoverError, match="bad:1: six numbers"):
        traces.from_ghent(tmp_path / "bad")
    (tmp_path / "bad").write_text(GNETTRACK.replace("2019.12.16_13.40.07", "yesterday"))
    with pytest.raises(holdover.HoldoverError, match="bad:5: .*yesterday"):
        traces.from_gnettrack(tmp_path / "bad")
    with pytest.raises(holdover.HoldoverError, match="two moments"):
        traces.table([traces.Condition(0, 1e6)])
    with pytest.raises(holdover.HoldoverError, match="some have none"):
        traces.table([traces.Condition(0, 1e6, 0.01), traces.Condition(1, 1e6)])
    text = traces.table([traces.Condition(5, 1e6, 0.01, 0.1), traces.Condition(7, 2e6, 0.02, 0)])
    assert text.splitlines()[:2] == ["t,rate,up,delay,loss", "0.000000,1000000,1,0.010000000,0.100000000"]


LUMOS = """run_num,seq_num,abstractSignalStr,latitude,longitude,movingSpeed,compassDirection,nrStatus,lte_rssi,lte_rsrp,lte_rsrq,lte_rssnr,nr_ssRsrp,nr_ssRsrq,nr_ssSinr,Throughput,mobility_mode,trajectory_direction,tower_id
1,1,2,44.97,-93.25,0.1,150,CONNECTED,-61,-94,-14,2147483647,-80,-11,17,200,walking,CW,1
1,2,2,44.97,-93.25,0.3,117,CONNECTED,-61,-94,-14,2147483647,-80,-11,17,0,walking,CW,1
1,3,2,44.97,-93.25,0.9,99,CONNECTED,-61,-94,-14,2147483647,-80,-11,17,1251.5,walking,CW,1
2,1,2,44.97,-93.25,0.9,99,CONNECTED,-61,-94,-14,2147483647,-80,-11,17,7,walking,CW,1
"""

WETLINKS = """site_name,timestamp_start,timestamp_end,server,ip_protocol,transport_protocol,download,upload
osnabrueck,2023-09-21T10:00:00+00:00,2023-09-21T10:00:01+00:00,a,4,tcp,210000000.0,
osnabrueck,2023-09-21T10:00:01+00:00,2023-09-21T10:00:02+00:00,a,4,tcp,180000000.0,12000000.0
osnabrueck,2023-09-21T10:00:02+00:00,2023-09-21T10:00:03+00:00,a,4,tcp,nan,9000000.0
osnabrueck,2023-09-21T10:00:03+00:00,2023-09-21T10:00:04+00:00,a,4,tcp,90000000.0,9500000.0
"""


def test_measurements_of_5g_and_starlink_become_traces(tmp_path):
    (tmp_path / "lumos.csv").write_text(LUMOS)
    lines = traces.from_lumos5g(tmp_path / "lumos.csv", run=1).splitlines()
    assert lines[1:] == ["t,rate,up", "0.000000,200000000,1", "1.000000,1000,0", "2.000000,1251500000,1", "3.000000,1251500000,1"]
    with pytest.raises(holdover.HoldoverError, match="no run 9"):
        traces.from_lumos5g(tmp_path / "lumos.csv", run=9)
    (tmp_path / "net_iperf.csv").write_text(WETLINKS)
    lines = traces.from_wetlinks(tmp_path / "net_iperf.csv").splitlines()
    assert lines[2:] == ["0.000000,210000000,1", "1.000000,180000000,1", "3.000000,90000000,1", "5.000000,90000000,1"]
    assert traces.from_wetlinks(tmp_path / "net_iperf.csv", "up").splitlines()[2] == "0.000000,12000000,1"
    with pytest.raises(holdover.HoldoverError, match="Throughput"):
        traces.from_lumos5g(tmp_path / "net_iperf.csv", run=1)


@pytest.mark.parametrize("wrong", [{"loss": 2.0}, {"delay_s": -1.0}, {"rate_bps": float("nan")}, {"t_s": float("inf")}])
def test_what_no_link_does_is_not_written(wrong):
    good = {"t_s": 0.0, "rate_bps": 1e6, "delay_s": 0.01, "loss": 0.0}
    conditions = [holdover.traces.Condition(**{**good, **wrong}), holdover.traces.Condition(**{**good, "t_s": 1.0})]
    with pytest.raises(holdover.HoldoverError, match="not possible"):
        holdover.traces.table(conditions)


def test_probes_of_irtt_become_a_link_with_outages(tmp_path):
    def probe(ms, rtt_ms):
        stamps = {"client": {"send": {"wall": 1_707_277_440_000_000_000 + ms * 1_000_000, "monotonic": 0}}}
        delay = {} if rtt_ms is None else {"rtt": int(rtt_ms * 1e6)}
        return {"seqno": ms, "lost": "true_down" if rtt_ms is None else "false", "timestamps": stamps, "delay": delay}

    trips = [probe(ms, None if 1000 <= ms < 2000 or ms == 2100 else 30 + ms / 1000) for ms in range(0, 3000, 100)]
    (tmp_path / "irtt.json").write_text(json.dumps({"round_trips": trips}))
    text = traces.from_irtt(tmp_path / "irtt.json")
    lines = [line.split(",") for line in text.splitlines()[1:]]
    assert lines[0] == ["t", "rtt", "loss", "up"]
    assert [line[3] for line in lines[1:]] == ["1", "0", "1", "1"]
    assert float(lines[1][1]) == pytest.approx(0.03045) and float(lines[3][2]) == pytest.approx(0.1)
    (tmp_path / "link.csv").write_text(text)
    with_trace = SCENARIO.split("outages")[0].replace('delay = "15 ms"\n', "").replace('loss = "1 %"\n', "")
    with_trace += 'trace = "link.csv"\n' + SCENARIO.split("}\n", 1)[1]
    run = holdover.Scenario.parse(with_trace, "traced.toml", tmp_path).run(variants=["cubic"], captures=False, report=False)
    assert run.flows["status"] == ["completed"]
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(holdover.HoldoverError, match="irtt client"):
        traces.from_irtt(tmp_path / "bad.json")


def test_a_run_of_a_drive_with_starlink_is_a_trace(tmp_path):
    (tmp_path / "mob.csv").write_text(
        "time,throughput,speed,latitude,longtitu,area_type\n"
        "2023-04-05 11:03:07 CDT,8.5,2.4,44.9,-93.2,suburban\n"
        "2023-04-05 11:03:08 CDT,0.0,2.4,44.9,-93.2,suburban\n"
        "2023-04-05 11:03:08 CDT,9.0,2.4,44.9,-93.2,suburban\n"
        "2023-04-05 11:03:10 CDT,29.5,2.4,44.9,-93.2,suburban\n"
        "2023-04-05 12:00:00 CDT,100,2.4,44.9,-93.2,rural\n"
        "2023-04-05 12:00:01 CDT,200,2.4,44.9,-93.2,rural\n"
    )
    first = holdover.traces.from_leo_and_cellular(tmp_path / "mob.csv").splitlines()
    assert first[2:] == ["0.000000,8500000,1", "1.000000,1000,0", "3.000000,29500000,1", "5.000000,29500000,1"]
    second = holdover.traces.from_leo_and_cellular(tmp_path / "mob.csv", run=1).splitlines()
    assert second[2:] == ["0.000000,100000000,1", "1.000000,200000000,1", "2.000000,200000000,1"]
    with pytest.raises(holdover.HoldoverError, match="no run 2; it has 2"):
        holdover.traces.from_leo_and_cellular(tmp_path / "mob.csv", run=2)
