import os
import signal
import subprocess
import sys
import time

import pyarrow
import pyarrow.parquet
import pytest

import holdover

distributed = pytest.importorskip("distributed")


def test_a_sweep_has_its_tables_and_says_how_it_tested(swept, files, tmp_path):
    seen = []
    result = swept.sweep(out=tmp_path / "a", progress=lambda done, expected: seen.append((done, expected)))
    again = swept.sweep(out=tmp_path / "b", jobs=1)
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert pyarrow.table(result.points) == pyarrow.table(again.points)
    assert result.test == "paired t-test by seed; p by Holm's correction over 2 tests"
    tests = result.tests.to_pandas()
    assert list(tests["test"]) == ["paired", "paired"] and set(tests["verdict"]) <= {"higher", "lower", "inconclusive"}
    assert (tests["p_holm"] >= tests["p"]).all()
    parquet = pyarrow.parquet.read_table(tmp_path / "a" / "points.parquet")
    assert parquet.column_names == result.points.column_names
    assert parquet.to_pydict() == pyarrow.table(result.points).to_pydict()
    assert result.test in result._repr_html_()
    runs = pyarrow.parquet.read_table(tmp_path / "a" / "runs.parquet")
    assert runs.num_rows == len(result.runs) and runs["seed"].to_pylist() == result.runs["seed"]
    opened = holdover.open_sweep(tmp_path / "a")
    assert pyarrow.table(opened.points) == pyarrow.table(result.points) and opened.summary == result.summary
    assert repr(opened) == repr(result) and f"{opened.summary['runs']} runs at 2 points" in repr(opened)
    with pytest.raises(holdover.HoldoverError, match="open_sweep"):
        holdover.open_run(tmp_path / "a")
    with pytest.raises(holdover.HoldoverError, match="not the directory of a complete sweep"):
        holdover.open_sweep(tmp_path)
    with pytest.raises(TypeError, match="distributed.Client"):
        swept.sweep(out=tmp_path / "c", client="tcp://127.0.0.1:8786")
    # A part of another sweep is not continued.
    with pytest.raises(holdover.HoldoverError, match="seed"):
        swept.with_(seed=4).sweep(out=tmp_path / "a")


# Claim: On a Dask cluster of two worker processes, one of which is killed, a sweep has the files of one machine, and no run has
# two rows.
def test_a_sweep_by_dask_is_that_of_one_machine_though_a_worker_is_killed(swept, files, tmp_path):
    # There are enough runs that a worker is killed during one of them.
    many = swept.with_({"sweep.replicate.min": 60, "sweep.replicate.max": 60})
    many.sweep(out=tmp_path / "threads")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        pids = client.run(os.getpid)
        assert len(set(pids.values())) == 2
        killed = []

        def kill_one(done, expected):
            if not killed and done >= 20:
                killed.append(next(iter(pids.values())))
                os.kill(killed[0], signal.SIGKILL)

        many.sweep(out=tmp_path / "dask", client=client, task_seconds=0.02, progress=kill_one)
        assert killed
        # Completed runs are not repeated.
        calls = []
        many.sweep(out=tmp_path / "dask", client=client, progress=lambda *progress: calls.append(progress))
        assert calls == []
    assert files(tmp_path / "threads") == files(tmp_path / "dask")
    rows = (tmp_path / "dask" / "journal.jsonl").read_text().splitlines()
    assert len(rows) == 1 + 2 * 2 * 60 == len(set(rows)), "nothing is lost, nothing is counted twice"


def test_a_sweep_goes_on_after_its_scheduler_has_gone(swept, files, tmp_path):
    swept.sweep(out=tmp_path / "threads")
    with pytest.raises(RuntimeError, match="lights out"):

        def stop(done, expected):
            raise RuntimeError("lights out")

        with (
            distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
            distributed.Client(cluster) as client,
        ):
            swept.sweep(out=tmp_path / "dask", client=client, progress=stop)
    kept = len((tmp_path / "dask" / "journal.jsonl").read_text().splitlines()) - 1
    assert kept >= 1
    swept.sweep(out=tmp_path / "dask")
    assert files(tmp_path / "threads") == files(tmp_path / "dask")


def test_the_module_fills_the_journal_for_the_program(swept, tmp_path):
    (tmp_path / "short.toml").write_text(swept.to_toml())
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        begin = "import sys; from holdover.sweeps import _main; sys.exit(_main())"
        command = [sys.executable, "-c", begin, "short.toml", "--out", "out", "--dask"]
        subprocess.run([*command, cluster.scheduler_address], cwd=tmp_path, check=True, timeout=120)
    rows = (tmp_path / "out" / "journal.jsonl").read_text().splitlines()
    assert len(rows) > 16
    refused = subprocess.run(
        [*command, "tcp://127.0.0.1:9", "--set", "link.radio.rate=fast"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert refused.returncode == 3 and "fast" in refused.stderr
    other = [word if word != "out" else "elsewhere" for word in command]
    nowhere = subprocess.run([*other, "foo"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert nowhere.returncode == 3 and "no scheduler of Dask at foo" in nowhere.stderr and "Traceback" not in nowhere.stderr


def test_an_interrupted_sweep_keeps_what_was_finished(swept, tmp_path):
    many = swept.with_({"sweep.replicate.min": 2000, "sweep.replicate.max": 2000})

    def stop(done, expected):
        if done >= 5:
            signal.raise_signal(signal.SIGINT)

    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        many.sweep(out=tmp_path / "out", progress=stop)
    assert time.monotonic() - begun < 60
    assert len((tmp_path / "out" / "journal.jsonl").read_text().splitlines()) > 5


def test_a_scenario_without_a_sweep_is_refused(scenario, tmp_path):
    with pytest.raises(holdover.HoldoverError, match="nothing to sweep"):
        scenario.sweep(out=tmp_path / "out")


@pytest.mark.skipif("HOLDOVER_BIN" not in os.environ, reason="HOLDOVER_BIN names no program holdover")
def test_the_program_sweeps_by_dask_to_the_same_files(swept, files, tmp_path):
    (tmp_path / "short.toml").write_text(swept.to_toml())
    program = os.path.abspath(os.environ["HOLDOVER_BIN"])
    environment = {**os.environ, "HOLDOVER_PYTHON": sys.executable}

    def run(*arguments):
        return subprocess.run(
            [program, "sweep", "short.toml", *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
        )

    plain = run("--out", "plain")
    assert plain.returncode == 0, plain.stderr
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        by_dask = run("--out", "dask", "--dask", cluster.scheduler_address)
    assert by_dask.returncode == 0, by_dask.stderr
    assert plain.stdout.replace("plain", "dask") == by_dask.stdout
    assert files(tmp_path / "plain") == files(tmp_path / "dask")
    swept.sweep(out=tmp_path / "module")
    assert files(tmp_path / "plain") == files(tmp_path / "module")
