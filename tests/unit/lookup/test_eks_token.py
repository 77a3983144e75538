"""The lookup: tokens by environment, by options, typed errors; once through ansible itself."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.errors import AnsibleError

from ansible_collections.gpushare.eks.plugins.lookup.eks_token import LookupModule

ROOT = Path(__file__).resolve().parents[3]
UNSET = ("AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN",
         "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID")  # fmt: skip
KEYS = {"access_key": "AKIDEXAMPLEKEY00", "secret_key": "example-secret-key"}


@pytest.fixture
def environment(monkeypatch, tmp_path):
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


@pytest.fixture
def lookup(environment):
    """Without ansible's plugin loader, which would change imports for the whole test process."""

    def go(*terms, **options):
        plugin = LookupModule()
        environment.setattr(plugin, "set_options", lambda **_: None)
        environment.setattr(plugin, "get_option", options.get)
        return plugin.run(list(terms), {}, **options)

    return go


def url_of(token):
    body = token.removeprefix("k8s-aws-v1.")
    return base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode()


def test_one_token_for_each_cluster(lookup):
    one, two = lookup("one", "two", region="eu-west-1", **KEYS)
    assert one != two
    assert url_of(one).startswith("https://sts.eu-west-1.amazonaws.com/?")


def test_endpoint_of_the_environment_and_of_the_option(lookup, environment):
    environment.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:5001")
    (token,) = lookup("demo", region="us-east-1", **KEYS)
    assert url_of(token).startswith("http://127.0.0.1:5001/?")
    (token,) = lookup("demo", region="us-east-1", endpoint_url="http://127.0.0.1:5002", **KEYS)
    assert url_of(token).startswith("http://127.0.0.1:5002/?")


def test_profile_wins_over_keys(lookup, environment, tmp_path):
    file = tmp_path / "credentials"
    file.write_text(
        "[lab]\naws_access_key_id = AKIDPROFILEKEY00\naws_secret_access_key = example-other-key\n"
    )
    environment.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    (token,) = lookup("demo", region="us-east-1", profile="lab", **KEYS)
    assert "AKIDPROFILEKEY00" in url_of(token)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"region": "us-east-1"}, "credentials"),
        (KEYS, "region"),
        ({"region": "us-east-1", "profile": "missing"}, "missing"),
    ],
)
def test_errors_are_for_a_person(lookup, options, told):
    with pytest.raises(AnsibleError, match=told) as caught:
        lookup("demo", **options)
    assert "Remedy" in str(caught.value)


def test_through_ansible_options_come_from_the_environment(environment, tmp_path):
    environment.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:5001")
    environment.setenv("AWS_REGION", "us-east-1")
    environment.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLEKEY00")
    environment.setenv("AWS_SECRET_ACCESS_KEY", "example-secret-key")
    message = "{{ [lookup('gpushare.eks.eks_token', 'demo')] }}"
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible", "localhost", "-i", "localhost,", "-m",
         "ansible.builtin.debug", "-a", json.dumps({"msg": message})],
        cwd=tmp_path,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    url = url_of(re.search(r"k8s-aws-v1\.[\w-]+", done.stdout)[0])
    assert url.startswith("http://127.0.0.1:5001/?")
    assert "us-east-1%2Fsts" in url
