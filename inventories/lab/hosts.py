#!/usr/bin/env python3
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# Copyright: (c) 2026, gpushare.eks contributors
"""The lab's inventory: one cluster on this machine, or nothing at all.

It is the default inventory, so it is the last thing between real credentials in a shell and an
account: it exits 1 with the remedy unless every way to AWS leads to this machine.
"""

from __future__ import annotations

import configparser
import ipaddress
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

REMEDY = """The default inventory is the lab, and the lab runs on this machine only.
  For the lab:        make lab, then: . .lab/env
  For a real account: ansible-playbook -i inventories/example ... (copy and edit it first)"""
TRUE = ("1", "true", "yes", "on")
IGNORE = "ignore_configured_endpoint_urls"
IGNORE_VARIABLE = f"AWS_{IGNORE}".upper()


def is_loopback(url: str) -> bool:
    """Whether the host of `url` is 127.0.0.0/8, ::1 or localhost."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme not in ("http", "https"):
            return False
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def config_file_ignores(environ: Mapping[str, str]) -> Iterator[str]:
    """Profiles of the AWS configuration that switch AWS_ENDPOINT_URL off."""
    if environ.get(IGNORE_VARIABLE, "").lower() == "false":
        return  # the environment wins over the file
    path = Path(environ.get("AWS_CONFIG_FILE", "~/.aws/config")).expanduser()
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read(path)
    except (configparser.Error, OSError, UnicodeDecodeError) as error:
        yield f"{path} cannot be read ({type(error).__name__})"
        return
    for section in parser.sections():
        if parser.get(section, IGNORE, fallback="").strip().lower() in TRUE:
            yield f"{path}: [{section}] sets {IGNORE}, which switches AWS_ENDPOINT_URL off"


def ways_out(environ: Mapping[str, str]) -> list[str]:
    """Every setting by which a call could leave this machine, each in words; empty is safe."""
    found = []
    endpoint = environ.get("AWS_ENDPOINT_URL", "")
    if not endpoint:
        found.append("AWS_ENDPOINT_URL is not set")
    elif not is_loopback(endpoint):
        found.append("AWS_ENDPOINT_URL is not a loopback address")
    # boto3 reads AWS_ENDPOINT_URL_<SERVICE>; modules of amazon.aws also read the other three.
    for name, value in sorted(environ.items()):
        single = name.startswith("AWS_ENDPOINT_URL_") or name in ("AWS_URL", "EC2_URL", "S3_URL")
        if single and value and not is_loopback(value):
            found.append(f"{name} leads elsewhere")
    if environ.get(IGNORE_VARIABLE, "").lower() in TRUE:
        found.append(f"{IGNORE_VARIABLE} switches AWS_ENDPOINT_URL off")
    found += config_file_ignores(environ)
    return found


def main() -> int:
    problems = ways_out(os.environ)
    if problems:
        print("; ".join(problems) + ".\n" + REMEDY, file=sys.stderr)
        return 1
    host = {
        "ansible_connection": "local",
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
    }
    inventory = {"gpushare": {"hosts": ["lab"]}, "_meta": {"hostvars": {"lab": host}}}
    print(json.dumps(inventory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
