# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils._ours import ours


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ({"gpushare.eks/cluster": "one"}, True),
        ({"gpushare.eks/cluster": "two"}, False),
        ({"aws:eks:cluster-name": "one"}, True),
        ({"kubernetes.io/cluster/one": "owned"}, True),
        ({"kubernetes.io/cluster/one": "shared"}, False),
        ({"elbv2.k8s.aws/cluster": "one"}, True),
        ({"elbv2.k8s.aws/cluster": "two"}, False),
        ({"Name": "one"}, False),
        ({}, False),
    ],
)
def test_ours_is_told_by_tags(tags, expected):
    found = ours([{"id": "x", "tags": tags}], "one")
    assert bool(found) is expected


def test_an_object_without_tags_is_foreign():
    assert ours([{"id": "x"}], "one") == []
