"""Quotas of teams: one form, and everything that is wrong at once."""

from __future__ import annotations

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils._team_quotas import (
    TeamQuotaError,
    team_quotas,
)


def test_sorted_and_in_the_form_of_an_api_server():
    found = team_quotas(
        [
            {"namespace": "vision", "gpu_memory": "24576Mi", "max_per_pod": "6Gi"},
            {"namespace": "audio", "gpu_memory": "1.5Gi"},
            {"namespace": "big", "gpu_memory": "1048576Mi"},
        ]
    )
    assert found == [
        {
            "namespace": "audio",
            "gpu_memory": "1536Mi",
            "gpu_memory_mib": 1536,
            "max_per_pod_mib": None,
        },
        {
            "namespace": "big",
            "gpu_memory": "1Ti",
            "gpu_memory_mib": 1048576,
            "max_per_pod_mib": None,
        },
        {
            "namespace": "vision",
            "gpu_memory": "24Gi",
            "gpu_memory_mib": 24576,
            "max_per_pod_mib": 6144,
        },
    ]
    assert team_quotas([]) == []


@pytest.mark.parametrize(
    ("item", "told"),
    [
        ({"gpu_memory": "1Gi"}, ["[0].namespace", "is not a namespace"]),
        ({"namespace": "A", "gpu_memory": "1Gi"}, ["[0].namespace", "'A'"]),
        ({"namespace": "a"}, ["[0].gpu_memory", "is missing", "24Gi"]),
        ({"namespace": "a", "gpu_memory": 0}, ["[0].gpu_memory", "is not above zero"]),
        ({"namespace": "a", "gpu_memory": "-1Gi"}, ["is not above zero"]),
        ({"namespace": "a", "gpu_memory": "20%"}, ["is not a quantity", "'20%'"]),
        ({"namespace": "a", "gpu_memory": "0.3"}, ["is not whole MiB, 1Mi would be"]),
        ({"namespace": "a", "gpu_memory": "3G"}, ["is not whole MiB, 2862Mi would be"]),
        (
            {"namespace": "a", "gpu_memory": "2Gi", "max_per_pod": "3Gi"},
            ["[0].max_per_pod", "above gpu_memory", "at most 2Gi"],
        ),
        ({"namespace": "a", "gpu_memory": "2Gi", "max_per_pod": 0}, ["[0].max_per_pod"]),
        ({"namespace": "a", "gpu_memroy": "2Gi"}, ["did you mean gpu_memory?"]),
        ({"namespace": "kube-system", "gpu_memory": "2Gi"}, ["is a system namespace"]),
        ("a", ["[0]", "is not a mapping"]),
    ],
)
def test_what_cannot_be_kept_is_refused(item, told):
    with pytest.raises(TeamQuotaError) as raised:
        team_quotas([item], system_namespaces=["kube-system"])
    for part in ["gpushare_team_quotas", *told]:
        assert part in str(raised.value)


def test_all_that_is_wrong_is_told_at_once():
    twice = {"namespace": "a", "gpu_memory": "1Gi"}
    with pytest.raises(TeamQuotaError) as raised:
        team_quotas([twice, twice, {"namespace": "b"}])
    assert "[1].namespace: stands twice" in str(raised.value)
    assert "[2].gpu_memory: is missing" in str(raised.value)


@pytest.mark.parametrize("quotas", [None, {}, "a", 3])
def test_no_list_is_refused(quotas):
    with pytest.raises(TeamQuotaError, match="is not a list"):
        team_quotas(quotas)
