"""Kills site.yml and destroy.yml with SIGKILL at many points; one re-run each has to mend it.

Needs a lab of its own (`make chaos`). GPUSHARE_CHAOS_POINTS (60) are spread over both playbooks,
half of them at task boundaries, half at random instants of GPUSHARE_SEED, which is printed. After
each kill and its one re-run the account and the cluster have to be what an undisturbed run made of
them, or hold nothing of ours. Everything is told at the end, and kept in build/chaos.json.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "collections"), str(ROOT)]

from tests.integration.support import aws_state, cluster, kill, normal, playbook  # noqa: E402

CLUSTER = "chaos"
VARS = {"gpushare_cluster_name": CLUSTER, "confirm_destroy": CLUSTER}
SITE, DESTROY = "site.yml", "playbooks/destroy.yml"


@dataclass
class Point:
    """One kill: at the task of that number, or after that many seconds."""

    playbook: str
    task: int | None = None
    seconds: float | None = None
    last_task: str = ""
    failures: list[str] = field(default_factory=list)

    @property
    def where(self) -> str:
        return f"task {self.task}" if self.task else f"{self.seconds:.1f} s"


def spread(book: str, count: int, tasks: int, seconds: float, chance: random.Random) -> list[Point]:
    """`count` points over one playbook, each in a stretch of its own, boundaries and instants."""
    points = []
    for number in range(count):
        place = (number + chance.random()) / count
        if number % 2:
            points.append(Point(book, seconds=round(seconds * 0.9 * place, 2)))
        else:
            points.append(Point(book, task=1 + int(place * (tasks - 2))))
    return points


def state() -> dict[str, list[str]]:
    """What stands, without what differs from run to run."""
    cluster.forget()
    return {**normal.account(CLUSTER), **normal.kubernetes(CLUSTER)}


def reached(point: Point):
    """Whether a run has come to the point."""
    began = time.monotonic()
    if point.task:
        return lambda text: text.count("TASK [") >= point.task
    return lambda _text: time.monotonic() - began >= point.seconds


def undisturbed(book: str) -> tuple[int, float]:
    """(tasks, seconds) of a whole run."""
    run = playbook.run(book, extra_vars=VARS)
    if run.rc:
        raise SystemExit(f"{book} fails undisturbed:\n{run.output[-4000:]}")
    return run.output.count("TASK ["), run.seconds


def disturb(point: Point, folder: Path) -> None:
    """Kill there, run once more, and look that it went well."""
    log, text = folder / "killed.log", ""
    while not text:
        try:
            text = kill.run_until(point.playbook, reached(point), log, extra_vars=VARS, timeout=600)
        except AssertionError:
            if not point.seconds or point.seconds < 1:
                raise
            # It was quicker than the undisturbed one: kill it earlier, with its work done already.
            point.seconds = round(point.seconds / 2, 2)
    point.last_task = text.rpartition("TASK [")[2].partition("]")[0]
    again = playbook.run(point.playbook, extra_vars=VARS)
    if again.rc:
        point.failures.append(f"the re-run failed: {again.output[-1500:]}")


def main() -> int:
    points = int(os.environ.get("GPUSHARE_CHAOS_POINTS", "60"))
    seed = int(os.environ.get("GPUSHARE_SEED") or time.time_ns() % 100_000)
    chance = random.Random(seed)
    print(f"chaos: {points} points, GPUSHARE_SEED={seed}", flush=True)
    before = aws_state.objects(CLUSTER)
    site = undisturbed(SITE)
    whole = state()
    destroy = undisturbed(DESTROY)
    plan = list(
        zip(
            spread(SITE, (points + 1) // 2, *site, chance),
            [*spread(DESTROY, points // 2, *destroy, chance), None],
            strict=False,
        )
    )
    done: list[Point] = []
    with tempfile.TemporaryDirectory() as folder:
        for built, taken in plan:
            disturb(built, Path(folder))
            if not built.failures:
                built.failures += normal.differences(whole, state())
            tell(built, done)
            taken = taken or Point(DESTROY, task=1)
            disturb(taken, Path(folder))
            left = {k: v for k, v in aws_state.objects(CLUSTER).items() if k not in before}
            taken.failures += [f"left: {name}" for name in sorted(left)]
            tell(taken, done)
            if left:
                undisturbed(DESTROY)  # the next point starts on clean ground
    broken = [one for one in done if one.failures]
    Path("build").mkdir(exist_ok=True)
    rows = {"seed": seed, "points": [asdict(one) for one in done]}
    Path("build/chaos.json").write_text(json.dumps(rows, indent=2) + "\n")
    print(f"chaos: {len(done)} points, {len(broken)} not mended by one re-run (seed {seed})")
    return 1 if broken else 0


def tell(point: Point, done: list[Point]) -> None:
    """One line for a point, and its failures."""
    done.append(point)
    verdict = "mended" if not point.failures else "NOT MENDED"
    print(
        f"chaos: {len(done):3d} {point.playbook} killed at {point.where} "
        f"({point.last_task}): {verdict}",
        flush=True,
    )
    for line in point.failures:
        print(f"    {line}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
