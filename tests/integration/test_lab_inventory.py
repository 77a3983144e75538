"""Real credentials in the shell and no lab: nothing may leave this machine, lookups included."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from .support import playbook

SCRIPT = playbook.ROOT / "inventories" / "lab" / "hosts.py"
LOOPBACK = "http://127.0.0.1:9"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIAQ3EGTESTONLY7EXA",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMIxK7MDENGxbPxRfiCYEXAMPLEKEY",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
# Every way in which a call could leave this machine.
WAYS_OUT = {
    "no endpoint": {},
    "an empty endpoint": {"AWS_ENDPOINT_URL": ""},
    "an account's endpoint": {"AWS_ENDPOINT_URL": "https://sts.us-east-1.amazonaws.com"},
    "a name that begins like loopback": {"AWS_ENDPOINT_URL": "http://127.0.0.1.example.com"},
    "loopback as the user name": {"AWS_ENDPOINT_URL": "http://127.0.0.1@example.com"},
    "all interfaces": {"AWS_ENDPOINT_URL": "http://0.0.0.0:5000"},
    "one service elsewhere": {
        "AWS_ENDPOINT_URL": LOOPBACK,
        "AWS_ENDPOINT_URL_EC2": "https://ec2.us-east-1.amazonaws.com",
    },
    "a module's own variable": {
        "AWS_ENDPOINT_URL": LOOPBACK,
        "AWS_URL": "https://ec2.us-east-1.amazonaws.com",
    },
    "endpoints switched off": {
        "AWS_ENDPOINT_URL": LOOPBACK,
        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true",
    },
}
WITH_A_LOOKUP = """
- hosts: gpushare
  gather_facts: false
  tasks:
    - ansible.builtin.debug:
        msg: "{{ lookup('amazon.aws.ssm_parameter', '/any', region='us-east-1') }}"
"""


def _clean(env: dict[str, str]) -> dict[str, str]:
    """The caller's environment without AWS or proxies, then the credentials, then `env`."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "EC2_", "S3_")) and not name.lower().endswith("_proxy")
    }
    return {**kept, "AWS_CONFIG_FILE": os.devnull, **CREDENTIALS, **env}


class Listener(threading.Thread):
    """A proxy that answers nothing and counts who came."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.connections = 0

    def run(self) -> None:
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            self.connections += 1
            client.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    thread = Listener()
    thread.start()
    yield thread
    thread.socket.close()


def _play(path: str, env: dict[str, str], listener: Listener) -> subprocess.CompletedProcess[str]:
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), listener.url)
    proxies |= {name.lower(): url for name, url in proxies.items()}
    return subprocess.run(
        playbook.arguments(path),
        cwd=playbook.ROOT,
        env=_clean({**proxies, **env}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("case", WAYS_OUT)
def test_site_refuses_before_the_first_call(case: str, listener: Listener) -> None:
    done = _play("site.yml", WAYS_OUT[case], listener)
    assert done.returncode != 0
    assert ". .lab/env" in done.stderr, done.stderr
    assert "-i inventories/example" in done.stderr
    assert "PLAY [" not in done.stdout
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in done.stdout + done.stderr
    assert listener.connections == 0


def test_a_lookup_is_not_evaluated_either(tmp_path: Path, listener: Listener) -> None:
    book = tmp_path / "lookup.yml"
    book.write_text(WITH_A_LOOKUP)
    done = _play(str(book), {}, listener)
    assert done.returncode != 0
    assert ". .lab/env" in done.stderr, done.stderr
    assert listener.connections == 0


def test_the_listener_would_have_seen_a_call(tmp_path: Path, listener: Listener) -> None:
    """The same lookup with an inventory that does not guard: the test above can fail."""
    book, hosts = tmp_path / "lookup.yml", tmp_path / "hosts.yml"
    book.write_text(WITH_A_LOOKUP)
    hosts.write_text("gpushare: {hosts: {any: {ansible_connection: local}}}\n")
    proxies = {"HTTPS_PROXY": listener.url, "HTTP_PROXY": listener.url}
    subprocess.run(
        [*playbook.arguments(str(book)), "-i", str(hosts)],
        cwd=playbook.ROOT,
        env=_clean({**proxies, "AWS_MAX_ATTEMPTS": "1"}),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert listener.connections > 0


def _script(env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), "--list"],
        env=_clean(env),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    "endpoint", [LOOPBACK, "http://127.8.9.1:5000", "http://[::1]:5000", "http://localhost:5000/"]
)
def test_a_loopback_endpoint_opens_the_lab(endpoint: str) -> None:
    done = _script({"AWS_ENDPOINT_URL": endpoint})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["gpushare"]["hosts"] == ["lab"]


def test_a_profile_that_switches_endpoints_off_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("[profile work]\nignore_configured_endpoint_urls = true\n")
    env = {"AWS_ENDPOINT_URL": LOOPBACK, "AWS_CONFIG_FILE": str(config)}
    refused = _script(env)
    assert refused.returncode == 1
    assert "[profile work]" in refused.stderr
    allowed = _script({**env, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "false"})
    assert allowed.returncode == 0, "the environment wins over the file"
