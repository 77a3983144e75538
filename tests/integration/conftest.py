"""The lab that `make integration` started, and one cluster on it, built through three SIGKILLs."""

from __future__ import annotations

import datetime
import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import boto3
import pytest

from .support import aws_state, kill, playbook
from .support.principal import Principal, written

CLUSTER = "it"
BOUNDARY = "it-boundary"
# The roles that are made have a path and a permissions boundary, as some organizations ask.
VARS = {
    "gpushare_cluster_name": CLUSTER,
    "gpushare_role_path": "/it/",
    "gpushare_permissions_boundary": f"arn:aws:iam::123456789012:policy/{BOUNDARY}",
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "last: runs after the others (it takes the cluster away)")


# Minutes each: all of them in `make test-all`, one of those that rotate each day in `make test`.
ROTATING = ("drift", "upgrade")
LONG = ("two_clusters",)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # One file or folder that was asked for by name runs, whatever the day.
    if not os.environ.get("GPUSHARE_ALL") and len({_part(item) for item in items}) > 1:
        days = datetime.date.today().toordinal()
        turn = os.environ.get("GPUSHARE_ROTATING") or ROTATING[days % len(ROTATING)]
        out = {*ROTATING, *LONG} - {turn}
        print(f"not today ({turn} is): {', '.join(sorted(out))}; GPUSHARE_ROTATING names another")
        config.hook.pytest_deselected(items=[item for item in items if _part(item) in out])
        items[:] = [item for item in items if _part(item) not in out]
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)


def _part(item: pytest.Item) -> str:
    """The folder below this one, or the file: drift/test_x.py and test_drift.py are both drift."""
    inside = item.path.relative_to(Path(__file__).parent)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem.removeprefix("test_")


@dataclass(frozen=True)
class Built:
    """The cluster under test and how it came to be."""

    name: str
    before: dict[str, dict]
    check: playbook.Run
    killed: list[str]
    site: playbook.Run
    seed: int
    principal: Principal


@pytest.fixture(scope="session", autouse=True)
def lab() -> None:
    """Without a lab nothing here may run: the calls would go to a real account."""
    assert os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://127.0.0.1:"), (
        "no lab: run `make integration`, or `make lab` and `. .lab/env`"
    )


@pytest.fixture(scope="session")
def principal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Principal]:
    """Who may do what policies.yml writes, and nothing else."""
    tmp: Path = tmp_path_factory.mktemp("policies")
    account = {"gpushare_account_id": "123456789012", "gpushare_build_dir": tmp}
    wrote = playbook.run("playbooks/policies.yml", extra_vars={**VARS, **account})
    assert wrote.rc == 0, wrote
    everything = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    boundary = boto3.client("iam").create_policy(
        PolicyName=BOUNDARY,
        PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [everything]}),
    )
    made = Principal(CLUSTER, written(tmp / "policies", CLUSTER), tmp / "times")
    made.make()
    yield made
    made.remove()
    boto3.client("iam").delete_policy(PolicyArn=boundary["Policy"]["Arn"])


@pytest.fixture(scope="session")
def built(principal: Principal, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """site.yml: in check mode without us in the account, killed at three tasks, whole."""
    tmp: Path = tmp_path_factory.mktemp("site")
    before = aws_state.objects(CLUSTER)
    check = principal.run("site.yml", "--check", "--diff", extra_vars=VARS)
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
            env=principal.env,
            timeout=300,
        )
        for after in points
    ]
    site = principal.run("site.yml", extra_vars=VARS)
    if site.rc == 0:
        principal.let_in(CLUSTER)
    return Built(CLUSTER, before, check, killed, site, seed, principal)
