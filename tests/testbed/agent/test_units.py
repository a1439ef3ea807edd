"""Units: real runs of the agent's shell scripts on a stand-in for systemd."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from schemas.errors import RemoteError, UserError
from testbed.agent import units
from tests.errors import raises
from tests.testbed.agent.fake_systemd import FakeSystemdShell
from tests.waiting import until


@pytest.fixture
def shell(tmp_path):
    with FakeSystemdShell(tmp_path) as shell:
        yield shell


def await_output(shell: FakeSystemdShell, name: str) -> None:
    """Wait until the unit's command has printed something."""
    out = shell.state / "units" / name / "stdout"
    until(lambda: out.exists() and out.read_text(), 10)


def test_output_exit_code_and_times_come_back(shell):
    before = time.time()
    words = 'it\'s $HOME; "%n" ${X} \\ ö\r\n*'
    script = 'printf "%s" "$1"; echo "err ö" >&2; exit 3'
    units.start(shell, "load-a", ["sh", "-c", script, "x", words], max_s=20)
    result = units.wait(shell, "load-a", timeout_s=10)
    assert (result.exit_code, result.stdout, result.stderr) == (3, words, "err ö\n")
    assert before <= result.started_at <= result.ended_at <= time.time()
    assert result.cpu_s is not None and 0 <= result.cpu_s < 1
    assert result.unit == "load-a" and result.node == "osd0"
    with raises(UserError, "osd0"):  # a unit is forgotten once waited for
        units.wait(shell, "load-a", timeout_s=10)
    assert list((shell.state / "units").iterdir()) == []


def test_a_second_start_is_refused_until_it_is_stopped(shell):
    units.start(shell, "load-a", ["sleep", "30"], max_s=60)
    with raises(UserError, "osd0"):
        units.start(shell, "load-a", ["true"], max_s=20)
    result = units.stop(shell, "load-a")
    assert result is not None and result.exit_code is None
    units.start(shell, "load-a", ["true"], max_s=20)
    assert units.wait(shell, "load-a", timeout_s=10).exit_code == 0


def test_a_unit_that_is_still_ending_is_waited_for(shell):
    """A killed command leaves its unit `deactivating` for seconds. systemd refuses to start the
    unit, and it still counts as load (seen with a killed replayer on a busy machine)."""
    ending = shell.ending("load-a")
    units.start(shell, "load-a", ["true"], max_s=20)
    assert not ending.exists()
    assert units.wait(shell, "load-a", timeout_s=10).exit_code == 0
    ending = shell.ending("load-a")
    assert units.stop(shell, "load-a") is None
    assert not ending.exists()


def test_a_stopped_program_may_still_print_its_result(shell):
    script = "trap 'echo summary; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    units.start(shell, "load-a", ["sh", "-c", script], max_s=60)
    await_output(shell, "load-a")
    result = units.stop(shell, "load-a")
    assert result is not None
    assert (result.exit_code, result.stdout) == (None, "up\nsummary\n")


def test_a_stop_signals_the_command_and_none_of_its_processes(shell):
    """A job of fio before 3.35 hangs if a signal interrupts its wait for its last reads: it then
    waits for the same number again (axboe/fio pull request 1556). fio's main process ends its jobs
    without signals."""
    job = "trap 'echo job signalled' TERM; echo up; while :; do sleep 0.05; done"
    main = "trap 'sleep 0.3; kill -KILL $job; echo summary; exit 0' TERM"
    script = f'sh -c "$0" & job=$!; {main}; while :; do wait; done'
    units.start(shell, "load-a", ["sh", "-c", script, job], max_s=60)
    await_output(shell, "load-a")
    result = units.stop(shell, "load-a")
    assert result is not None
    assert (result.exit_code, result.stdout) == (None, "up\nsummary\n")


def test_a_stop_before_the_command_has_begun_is_no_start(shell, tmp_path):
    # Stop the script while it is still recording its start time.
    asked, begun = tmp_path / "asked", tmp_path / "begun"
    slow = shell.programs / "date"
    slow.write_text(f"#!/bin/sh\ntouch {asked}\nexec sleep 60\n")
    slow.chmod(0o755)
    units.start(shell, "load-a", ["touch", str(begun)], max_s=60)
    until(asked.exists, 10)
    slow.unlink()
    result = units.stop(shell, "load-a")
    assert result is not None and result.exit_code is None
    assert units.live(shell) == []
    assert asked.exists() and not begun.exists()


@pytest.mark.parametrize("step_s", [7200, -7200])
def test_a_step_of_the_clock_moves_no_wait(shell, step_s):
    """Every reading of the node's clock is off by two more hours."""
    looks = shell.programs / "looks"
    date = shell.programs / "date"
    date.write_text(
        f"#!/bin/sh\nseen=$(cat {looks} 2>/dev/null || echo 0)\n"
        f"echo $(( seen + {step_s} )) > {looks}\n"
        "echo $(( 1700000000 + seen ))\n"
    )
    date.chmod(0o755)
    units.start(shell, "load-a", ["sleep", "1"], max_s=20)
    result = units.wait(shell, "load-a", timeout_s=60)
    assert result.exit_code == 0
    assert 0 <= result.ended_at - result.started_at < 20
    units.start(shell, "load-a", ["sleep", "30"], max_s=60)
    with raises(RemoteError, "still runs after 0 s") as caught:
        units.wait(shell, "load-a", timeout_s=0)
    assert caught.value.retry


def test_a_program_that_outlives_its_time_or_is_not_there(shell):
    units.start(shell, "load-a", ["sleep", "30"], max_s=0.3)
    assert units.wait(shell, "load-a", timeout_s=10).exit_code is None
    units.start(shell, "load-a", ["no-such-program"], max_s=20)
    result = units.wait(shell, "load-a", timeout_s=10)
    assert result.exit_code == 127 and "not found" in result.stderr


def test_a_killed_unit_is_noticed(shell):
    units.start(shell, "load-a", ["sh", "-c", "echo half; exec sleep 30"], max_s=60)
    await_output(shell, "load-a")
    shell.kill("load-a")
    result = units.wait(shell, "load-a", timeout_s=10)
    assert result.exit_code is None and result.stdout == "half\n"


def test_a_result_is_read_once(shell, tmp_path):
    """After Ctrl-C a unit is stopped while the reading that waited for it is still under way (seen
    in the test of a killed engine: both readings failed, and so did the interrupted cell)."""
    reading, go = tmp_path / "reading", tmp_path / "go"
    slow = shell.programs / "wc"
    hold = f"mkdir {reading} && until [ -e {go} ]; do /bin/sleep 0.02; done"
    slow.write_text(f"#!/bin/sh\n{hold}\nexec /usr/bin/wc -c\n")
    slow.chmod(0o755)
    units.start(shell, "load-a", ["echo", "whole"], max_s=20)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(units.wait, shell, "load-a", timeout_s=10)
        try:
            until(reading.exists, 10)
            assert units.stop(shell, "load-a") is None
        finally:
            go.touch()
        assert waiting.result().stdout == "whole\n"
    assert list((shell.state / "units").iterdir()) == []


def test_a_result_stays_if_its_reader_goes(shell):
    units.start(shell, "load-a", ["seq", "100000"], max_s=20)
    reader = shell.popen(units._sh(units._WAIT + units._FETCH, "load-a", "10"))
    assert reader.stdout is not None
    assert reader.stdout.read(1)
    reader.stdout.close()
    assert reader.wait(10) != 0
    assert units.wait(shell, "load-a", timeout_s=10).stdout.endswith("\n100000\n")


@pytest.mark.parametrize("max_s", [0, -1, float("inf"), float("nan")])
def test_a_unit_needs_an_end(shell, max_s):
    with pytest.raises(UserError):
        units.start(shell, "load-a", ["true"], max_s=max_s)


def test_a_stray_is_found_and_a_unit_of_ours_is_none(shell, tmp_path):
    # A program called fio outside our units: a copy of sleep with that name.
    program = tmp_path / "fio"
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    units.start(shell, "load-a", [str(program), "31.4159"], max_s=60)
    found = until(lambda: [line for line in units.stray(shell) if "31.4159" in line], 10)
    assert len(found) == 1 and found[0].split()[1] == str(program)
