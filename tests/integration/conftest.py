"""The lab that `make integration` started, and one cluster on it, built through three SIGKILLs."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from .support import aws_state, kill, playbook

CLUSTER = "it"
VARS = {"gpushare_cluster_name": CLUSTER}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "last: runs after the others (it takes the cluster away)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)


@dataclass(frozen=True)
class Built:
    """The cluster under test and how it came to be."""

    name: str
    before: dict[str, dict]
    check: playbook.Run
    killed: list[str]
    site: playbook.Run
    seed: int


@pytest.fixture(scope="session", autouse=True)
def lab() -> None:
    """Without a lab nothing here may run: the calls would go to a real account."""
    assert os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://127.0.0.1:"), (
        "no lab: run `make integration`, or `make lab` and `. .lab/env`"
    )


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """site.yml: in check mode without us in the account, killed at three tasks, whole."""
    tmp: Path = tmp_path_factory.mktemp("site")
    before = aws_state.objects(CLUSTER)
    check = playbook.run("site.yml", "--check", "--diff", extra_vars=VARS)
    assert aws_state.objects(CLUSTER) == before, "check mode changed the account"
    # The same for everybody, so that a red run is the change's; `make test-all` moves them.
    seed = int(os.environ.get("GPUSHARE_SEED", "7"))
    print(f"kill points by GPUSHARE_SEED={seed}")
    points = sorted(random.Random(seed).sample(range(8, check.output.count("TASK [")), 3))
    killed = [
        kill.run_until(
            "site.yml",
            lambda text, after=after: text.count("TASK [") >= after,
            tmp / f"killed-{after}.log",
            extra_vars=VARS,
            timeout=300,
        )
        for after in points
    ]
    site = playbook.run("site.yml", extra_vars=VARS)
    return Built(CLUSTER, before, check, killed, site, seed)
