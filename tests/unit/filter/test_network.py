"""The filters about networks: their documentation, and what people see of an error."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.gpushare.eks.plugins.filter import network

FILTERS = network.FilterModule().filters()


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("subnets", ["nonsense", ["a", "b"]]),
        ("choose_zones", [[], {}, 2]),
        ("endpoint_place", [[{"service": "x"}], [], {}]),
    ],
)
def test_an_error_names_its_filter(name, given):
    with pytest.raises(AnsibleFilterError, match=rf"^gpushare\.eks\.{name}: "):
        FILTERS[name](*given)
