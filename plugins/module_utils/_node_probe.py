# Copyright: (c) 2026, gpushare.eks contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Print this node's reading as one line: the second part of the script that SSM sends.

Runs ON the node (Python 3.9, standard library only). NVML is asked in a process of its own, and
the instance metadata service by a plain socket.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time

from ansible_collections.gpushare.eks.plugins.module_utils.nvml_probe import (
    SCHEMA,
    boot_id,
    compact,
    failure,
    read_nvml,
    to_line,
)


def read_in_child(read, timeout_s):
    """(None, what `read` gave) or (the failure, None), after timeout_s at most.

    `read` runs in a child of our own: a driver that hangs or crashes takes only that along. Its end
    is not waited for: a process that is stuck in the driver may survive SIGKILL for a while.
    """
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):  # whatever the driver's library prints stays out of our line
                os.dup2(nothing, stream)
            text = json.dumps(read()).encode()
            while text:
                text = text[os.write(sending, text) :]
        finally:
            os._exit(0)
    os.close(sending)
    deadline = time.monotonic() + timeout_s
    try:
        text, end = _drain(receiving, deadline)
    finally:
        os.close(receiving)
    if not end:
        os.kill(child, signal.SIGKILL)
        message = f"NVML did not answer within {timeout_s:g} s: the driver hangs"
        return failure("TIMEOUT", 10, message), None
    try:
        return None, json.loads(text)
    except ValueError:
        ended = f"the process that reads NVML ended with wait status {_status(child, deadline)}"
        return failure("PROBE_CRASHED", None, ended), None


def _status(child, deadline):
    """How the child ended; None when it has not by the deadline."""
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.01)
    return None


def _drain(descriptor, deadline):
    """All bytes until the other side closes -> (text, True); at the deadline (text, False)."""
    text = b""
    while True:
        ready, _dummy, _dummy = select.select(
            [descriptor], [], [], max(0.0, deadline - time.monotonic())
        )
        if not ready:
            return text, False
        chunk = os.read(descriptor, 65536)
        if not chunk:
            return text, True
        text += chunk


def _http(address, request, deadline):
    """One HTTP/1.0 exchange by a plain socket (http.client costs more to import than all else)."""
    with socket.create_connection(address, timeout=max(0.01, deadline - time.monotonic())) as link:
        link.sendall(request.encode("ascii"))
        answer = b""
        while len(answer) < 8192:
            link.settimeout(max(0.01, deadline - time.monotonic()))
            chunk = link.recv(4096)
            if not chunk:
                break
            answer += chunk
    head, _dummy, body = answer.partition(b"\r\n\r\n")
    return body.decode("ascii").strip() if b" 200 " in head.split(b"\r\n")[0] + b" " else None


def instance_id(limit_s=2.0):
    """This instance's ID by IMDSv2, or None where the metadata service does not answer in time."""
    base = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or "http://169.254.169.254"
    place, _dummy, path = base.partition("://")[2].partition("/")
    host, _dummy, port = (
        place.rpartition(":") if ":" in place.rpartition("]")[2] else (place, "", "80")
    )
    address, root = (host.strip("[]"), int(port)), ("/" + path).rstrip("/")
    deadline = time.monotonic() + limit_s
    line = "%s " + root + "/latest/%s HTTP/1.0\r\nHost: " + place + "\r\n%s\r\n"
    life = "X-aws-ec2-metadata-token-ttl-seconds: 60\r\n"
    try:
        token = _http(address, line % ("PUT", "api/token", life), deadline)
        if not token:
            return None
        header = f"X-aws-ec2-metadata-token: {token}\r\n"
        return _http(address, line % ("GET", "meta-data/instance-id", header), deadline)
    except (OSError, ValueError):
        return None


def head(identity=instance_id):
    """Which node speaks, and when."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"schema": SCHEMA, "boot_id": boot_id(), "instance_id": identity(), "time": now}


def read(library=None, timeout_s=10.0, identity=instance_id):
    """The whole reading as a dict, not compacted; raises nothing NVML-made."""
    failed, answer = read_in_child(lambda: read_nvml(library), timeout_s)
    return dict(head(identity), **(failed or answer))


def say(line):
    """Print what line() gives; the exit code is 0 whenever a line was printed, also an error's."""
    try:
        text = line()
    except Exception as exc:
        failed = failure("PROBE_FAILED", None, repr(exc))
        text = to_line(dict(head(lambda: None), **failed))
    sys.stdout.write(text + "\n")


def main():
    """What the document runs."""
    say(lambda: compact(read()))
