# Claim: From Python: runs and sweeps give the bytes of the program, tables are Arrow's, errors have their places, Ctrl-C ends a
# run, and other threads can work meanwhile.
# Tests: `python/tests/test_scenario.py`, `python/tests/test_sweeps.py`

import os
import signal
import threading
import time

import pyarrow
import pyarrow.types as types
import pytest

import holdover


def test_a_run_is_that_of_the_program_and_its_tables_are_arrow(scenario, files, tmp_path):
    seen = []
    run = scenario.run(out=tmp_path / "a", progress=seen.append)
    scenario.run(out=tmp_path / "b", jobs=1)
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert seen[-1] == 1.0 and all(0 <= share <= 1 for share in seen)
    assert {"report.html", "summary.json", "flows.csv", "scenario.toml"} <= files(tmp_path / "a").keys()

    flows = pyarrow.table(run.flows)
    assert flows.num_rows == 2 and flows["variant"].to_pylist() == ["cubic", "bsd"]
    assert types.is_float64(flows.schema.field("goodput_bps").type)
    assert types.is_uint64(flows.schema.field("timeouts").type)
    assert run.flows["goodput_bps"] == flows["goodput_bps"].to_pylist()
    summary = run.summary["variants"][0]["flows"][0]
    assert flows["goodput_bps"][0].as_py() == summary["goodput_bps"]

    cubic = run["cubic"]
    samples = cubic.samples.to_pandas()
    assert samples["t_s"].is_monotonic_increasing and samples["snd_cwnd"].max() > 10
    events = cubic.events.to_pandas()
    down = events[events["event"] == "link-down"]
    assert list(down["t_s"]) == [0.5] and list(down["link"]) == ["radio"]
    assert all(cubic.captures[name].stat().st_size > 1000 for name in ["phone-eth0", "server-eth0"])
    assert "<svg" in run._repr_html_() and "<table>" in run._repr_html_()
    with pytest.raises(KeyError, match="there are cubic, bsd"):
        run["reno"]
    again = holdover.open_run(tmp_path / "a")
    assert pyarrow.table(again.flows) == flows


def test_what_cannot_be_run_is_refused(scenario, tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(holdover.HoldoverError, match="not empty"):
        scenario.run(out=tmp_path)
    with pytest.raises(ValueError, match="there are cubic, bsd"):
        scenario.run(variants=["reno"])
    with pytest.raises(ValueError, match="there are phone, server"):
        scenario.run(mechanisms={"laptop": holdover.Mechanism})
    with pytest.raises(holdover.HoldoverError, match="summary.json"):
        holdover.open_run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_other_threads_go_on_and_an_interruption_ends_the_run(scenario, tmp_path):
    long = scenario.with_({"time_limit": "10 h", "flow.download.bulk": "9 h"})
    counted = 0

    def interrupt():
        nonlocal counted
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            counted += 1
            time.sleep(0.001)
        signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        long.run(out=tmp_path / "out", captures=False, report=False)
    thread.join()
    assert counted > 20, "the interpreter was free"
    assert not (tmp_path / "out").exists(), "nothing is kept"

    def stop(share):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        long.run(captures=False, report=False, progress=stop)


def on_the_kernel(scenario, **options):
    try:
        return scenario.run(variants=["cubic"], report=False, **options)
    except holdover.HoldoverError as error:
        if "kernels cannot be used" in str(error) and os.environ.get("HOLDOVER_REQUIRE_NAMESPACES") != "1":
            pytest.skip(str(error))
        raise


# Claim: A Python process, also one with threads, runs a scenario on this machine's kernel. If its `progress` raises, the run ends
# and leaves no files.
# Tests: `test_a_run_on_the_kernel_ends_with_the_process_that_wants_it`
def test_a_process_with_threads_has_a_run_on_the_kernel_beside_the_simulators(scenario, tmp_path):
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        seen = []
        run = on_the_kernel(scenario, world="both", out=tmp_path / "both", progress=seen.append)
    finally:
        stop.set()
        thread.join()
    assert list(run.variants) == ["cubic", "cubic (kernel)"]
    assert seen[-1] == 1.0 and len(seen) > 5
    kernel = run["cubic (kernel)"]
    assert kernel.summary["kernel"]["release"] == os.uname().release
    assert run.flows["bytes_received"] == [300_000, 300_000]
    assert kernel.samples["snd_cwnd"] and kernel.captures
    # The outage of 1.5 s took place in real time.
    assert run.flows["duration_s"][1] > 1.5


def test_a_run_on_the_kernel_ends_with_the_process_that_wants_it(scenario, tmp_path):
    def stop(share):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        on_the_kernel(scenario, world="real", out=tmp_path / "out", progress=stop)
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_on_a_kernel_is_refused(scenario, tmp_path):
    with pytest.raises(holdover.HoldoverError, match='no host "tablet"'):
        scenario.run(world="real", simulated=["tablet"], out=tmp_path / "out")
    with pytest.raises(ValueError, match="about kernels"):
        scenario.run(repeat=3)
    with pytest.raises(ValueError, match="are for the simulator"):
        scenario.run(world="real", mechanisms={"phone": holdover.Mechanism})
    with pytest.raises(ValueError, match='no congestion control "vegas"'):
        scenario.run(world="real", kernel_congestion="vegas", out=tmp_path / "out")
    bsd = scenario.with_({"variant": [{"name": "bsd", "set": {"stack": "reno-bsd"}}]})
    with pytest.raises(holdover.HoldoverError, match="no variant can be run on a kernel"):
        bsd.run(world="real", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
