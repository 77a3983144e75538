"""Every filter has a document beside it, which names its arguments as the code does."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from ansible_collections.gpushare.eks.plugins.filter import gpu, network, workloads

FOLDER = Path(gpu.__file__).parent
FILTERS: dict[str, Callable] = {}
for module in (gpu, network, workloads):
    FILTERS |= module.FilterModule().filters()


@pytest.mark.parametrize("name", sorted(FILTERS))
def test_a_filter_is_documented(name):
    text = yaml.safe_load((FOLDER / f"{name}.yml").read_text(encoding="utf-8"))
    assert text["DOCUMENTATION"]["name"] == name
    parameters = list(inspect.signature(FILTERS[name]).parameters.values())[1:]
    named = ["_input", *(one.name for one in parameters if one.kind is not one.VAR_KEYWORD)]
    options = {*text["DOCUMENTATION"]["options"]}
    # What follows as **options the pure function names, and refuses what it does not know.
    assert options == {*named} if len(named) > len(parameters) else options > {*named}
    positional = text["DOCUMENTATION"].get("positional", "_input").split(", ")
    assert positional == named[: len(positional)]
    assert text["EXAMPLES"]
    assert text["RETURN"]["_value"]["description"]


def test_every_document_is_of_a_filter():
    assert {path.stem for path in FOLDER.glob("*.yml")} == set(FILTERS)
