"""The pod of the load test against a server that answers, fails, or is not there."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import threading

import pytest

from ansible_collections.gpushare.eks.plugins.module_utils import _load_pod


@contextlib.contextmanager
def server(code):
    """A server that answers each POST with `code`; the URL and what was asked."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            asked.append((self.path, body))
            self.send_response(code)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_arguments):
            pass

    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{made.server_port}/v1/models/resnet:predict", asked
    finally:
        made.shutdown()
        made.server_close()


def run(url, seconds="0.4"):
    return _load_pod.run(
        {
            "GPUSHARE_LOAD_URL": url,
            "GPUSHARE_LOAD_SECONDS": seconds,
            "GPUSHARE_LOAD_CONNECTIONS": "2",
        }
    )


def test_it_asks_for_a_picture_again_and_again():
    with server(200) as (url, asked):
        found = run(url)
    assert found["requests"] == len(asked) > 2
    assert (found["errors"], found["first_error"]) == (0, None)
    assert 0 < found["p50_ms"] <= found["p95_ms"] <= found["p99_ms"]
    assert found["per_second"] == pytest.approx(found["requests"] / found["seconds"], rel=0.2)
    path, body = asked[0]
    assert path == "/v1/models/resnet:predict"
    (picture,) = json.loads(body)["instances"]
    assert (len(picture), len(picture[0]), len(picture[0][0])) == (224, 224, 3)


def test_an_error_of_the_server_is_counted_and_the_first_is_told():
    with server(500) as (url, asked):
        found = run(url)
    assert found["requests"] == 0
    # A connection that broke with the server's end may have been counted as well.
    assert found["errors"] >= len(asked) > 0
    assert found["first_error"] == "OSError: 500 {}"
    assert found["p50_ms"] is None


def test_nobody_there_is_asked_slowly():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = run(f"http://127.0.0.1:{port}/")
    assert found["requests"] == 0
    assert 2 <= found["errors"] <= 6
    assert "refused" in found["first_error"]


def test_percentiles():
    assert _load_pod.percentile([], 50) is None
    values = [float(n) for n in range(1, 101)]
    assert [_load_pod.percentile(values, p) for p in (50, 95, 99)] == [50.0, 95.0, 99.0]
    assert _load_pod.percentile([7.0], 99) == 7.0
