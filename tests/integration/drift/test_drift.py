"""Each drift is seen by --check --diff, mended by one run, and the next run changes nothing."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path

import pytest

from ..conftest import VARS, Built
from ..support import playbook
from .aws_drifts import EKS, KMS, NETWORK, NODES, Drift
from .kubernetes_drifts import DEVICE_PLUGIN, SAMPLE
from .place import Place

DRIFTS: dict[str, Drift] = {**NETWORK, **KMS, **EKS, **NODES, **DEVICE_PLUGIN, **SAMPLE}
LEAST = 30
TOGETHER = 3
_TASK = re.compile(r"^TASK \[(?P<title>.*?)\].*?$", re.MULTILINE)


def chosen() -> list[list[str]]:
    """One after the other in `make test-all`; else some of one part at once, by the seed.

    Those at once differ in what --check names, so that each is seen for itself.
    """
    if os.environ.get("GPUSHARE_ALL"):
        return [[name] for name in DRIFTS]
    seed = int(os.environ.get("GPUSHARE_SEED", "7"))
    pick = random.Random(seed)
    part = pick.choice(sorted({one.part for one in DRIFTS.values()}))
    names = [name for name, one in DRIFTS.items() if one.part == part]
    by_what_is_seen = {DRIFTS[name].seen: name for name in pick.sample(names, len(names))}
    return [sorted(by_what_is_seen.values())[:TOGETHER]]


def run(place: Place, part: str, tmp: Path, *more: str) -> playbook.Run:
    """The part alone; the results that it takes are read from AWS each time."""
    given = tmp / "results.json"
    if part not in ("network", "kms"):
        given.write_text(json.dumps(place.results()))
        more = (*more, "-e", f"@{given}")
    variables = {**VARS, "drift_part": part}
    done = playbook.run(str(Path(__file__).with_name("part.yml")), *more, extra_vars=variables)
    assert done.rc == 0, done
    return done


def changes(output: str) -> list[str]:
    """The tasks that changed something: title, items and diff as printed."""
    starts = [*_TASK.finditer(output)]
    ends = [match.start() for match in starts[1:]] + [len(output)]
    blocks = [output[match.start() : end] for match, end in zip(starts, ends, strict=True)]
    return [block for block in blocks if re.search(r"^changed: ", block, re.MULTILINE)]


def test_the_list_is_long_enough_and_told() -> None:
    print(f"drifts by GPUSHARE_SEED={os.environ.get('GPUSHARE_SEED', '7')}: {chosen()}")
    assert len(DRIFTS) >= LEAST


@pytest.mark.parametrize("names", chosen(), ids=", ".join)
def test_a_drift_is_seen_and_mended(names: list[str], built: Built, tmp_path: Path) -> None:
    assert built.site.rc == 0, built.site
    place, drifts = Place(built.name), {name: DRIFTS[name] for name in names}
    (part,) = {one.part for one in drifts.values()}
    before = {name: one.read(place) for name, one in drifts.items()}
    for one in drifts.values():
        one.spoil(place)
    spoiled = {name: one.read(place) for name, one in drifts.items()}
    for name in names:
        assert spoiled[name] != before[name], f"{name}: nothing was changed behind our back"

    check = run(place, part, tmp_path, "--check", "--diff")
    found = changes(check.output)
    for name, one in drifts.items():
        assert any(re.search(one.seen, block) for block in found), f"{name} is not seen: {check}"
    assert {name: one.read(place) for name, one in drifts.items()} == spoiled

    mended = run(place, part, tmp_path)
    assert mended.recap["changed"] > 0, mended
    assert {name: one.read(place) for name, one in drifts.items()} == before, mended
    again = run(place, part, tmp_path)
    assert again.recap["changed"] == 0, again
