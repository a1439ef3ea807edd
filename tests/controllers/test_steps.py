"""Steps of running controllers, as live views read them."""

from __future__ import annotations

import json

from controllers.steps import RunningSteps


def line(step: int, *actions: dict[str, object]) -> str:
    spans = {"sense_s": 0.1, "decide_s": 0.2, "act_s": None, "error": None}
    return json.dumps({"step": step, "wall": 100.0 + step, "actions": actions} | spans) + "\n"


MOVE = {"action": "SetPrimaryAffinity", "osd": 3, "value": 0.5}


def test_a_look_reads_what_is_new_of_running_controllers_alone(tmp_path):
    folders = {name: tmp_path / name for name in ("dlr", "ended", "killed")}
    for folder in folders.values():
        folder.mkdir()
        (folder / "journal.jsonl").write_text(
            '{"header": true}\n' + line(0, MOVE, {"action": "Up"})
        )
    (folders["ended"] / "outcome.json").write_text("{}")
    asked, now = [], [0.0]

    def runs(name: str) -> bool:
        asked.append(name)
        return name == "dlr"

    steps = RunningSteps(tmp_path, runs, lambda: now[0])
    (seen,) = steps.look().values()
    assert (seen["step"], seen["at"], seen["actions"]) == (0, 100.0, ["osd.3=0.50", "1 Up"])
    with (folders["dlr"] / "journal.jsonl").open("a") as journal:
        journal.write(line(1) + line(2) + '{"step": 3')
    seen = steps.look()["dlr"]
    assert (seen["step"], seen["actions"], seen["acted"]["step"]) == (2, [], 0)
    assert seen["actions_seen"] == 2
    assert asked == ["dlr", "killed"]  # systemd is not asked at every look
    now[0] = 60.0
    (folders["dlr"] / "journal.jsonl").rename(folders["dlr"] / "journal-1.jsonl")
    (folders["dlr"] / "journal.jsonl").write_text('{"header": true}\n')
    assert steps.look() == {"dlr": {}}
    assert asked == ["dlr", "killed", "dlr", "killed"]
