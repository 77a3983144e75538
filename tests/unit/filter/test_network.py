"""The filters about networks: their documentation, and what people see of an error."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.gpushare.eks.plugins.filter import network

FILTERS = network.FilterModule().filters()


@pytest.mark.parametrize("name", sorted(FILTERS))
def test_documented(name):
    path = Path(network.__file__).with_name(f"{name}.yml")
    text = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert text["DOCUMENTATION"]["name"] == name
    code = FILTERS[name].__code__
    named = {*text["DOCUMENTATION"]["positional"].split(", ")} - {"_input"}
    assert named == set(code.co_varnames[1 : code.co_argcount])
    assert text["RETURN"]["_value"]["description"]


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
