# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from ansible_collections.gpushare.eks.plugins.module_utils._eks_asg import PREFIX, sync_tags
from ansible_collections.gpushare.eks.plugins.module_utils._sync import Outcome

THERE = {
    # EKS writes these two for every managed node group, whatever the pool's autoscaler.
    "k8s.io/cluster-autoscaler/enabled": "true",
    "k8s.io/cluster-autoscaler/demo": "owned",
    f"{PREFIX}label/old": "1",
}


class AutoScaling:
    """The three calls of the client, over one group's tags."""

    def __init__(self) -> None:
        self.tags = dict(THERE)

    def get_paginator(self, _operation):
        return self

    def paginate(self, **_filters):
        tags = [{"ResourceId": "asg", "Key": key, "Value": self.tags[key]} for key in self.tags]
        return [{"Tags": tags}]

    def create_or_update_tags(self, *, Tags):
        self.tags.update({tag["Key"]: tag["Value"] for tag in Tags})

    def delete_tags(self, *, Tags):
        for tag in Tags:
            del self.tags[tag["Key"]]


def test_a_pool_without_autoscaler_loses_our_tags_and_keeps_those_of_eks():
    client = AutoScaling()
    outcome = Outcome(changed=False, before={"name": "g"}, after={"name": "g"}, value={})
    for changed in (True, False):
        result = sync_tags(client, {"g": ["asg"]}, {"g": {}}, {"g": outcome}, check_mode=False)
        assert result["g"].changed is changed
    assert f"{PREFIX}label/old" not in client.tags
    assert len(client.tags) == 2
