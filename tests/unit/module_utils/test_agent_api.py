"""The agent's requests over TLS against a small server: list, watch, 410, silence, a new token."""

from __future__ import annotations

import datetime
import http.server
import ipaddress
import json
import ssl
import threading
import time
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ansible_collections.gpushare.eks.plugins.module_utils._agent_api import Api, Lost


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A certificate for 127.0.0.1, its own CA, and its key, as one PEM file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "api")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "pair.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    return path


class Server:
    """Answers a list, and each watch with the next of `watches` (lists of events)."""

    def __init__(self, pair):
        self.watches, self.seen, self.tokens, self.status = [], [], [], 200
        self.hold, self.released = False, threading.Event()
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                query = parse_qs(urlsplit(self.path).query)
                server.seen.append({key: value[0] for key, value in query.items()})
                server.tokens.append(self.headers["Authorization"])
                if "watch" not in query:
                    item = {"metadata": {"name": "n", "resourceVersion": "5"}}
                    listed = {"metadata": {"resourceVersion": "5"}, "items": [item]}
                    return self.reply(server.status, json.dumps(listed).encode())
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for event in server.watches.pop(0) if server.watches else []:
                    line = json.dumps(event).encode() + b"\n"
                    # In two chunks: an event is a line, not a chunk.
                    for part in (line[:10], line[10:]):
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                if server.hold:
                    server.released.wait(10)
                self.wfile.write(b"0\r\n\r\n")
                return None

            def do_PATCH(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server.seen.append({"kind": self.headers["Content-Type"], "body": json.loads(body)})
                self.reply(422, b'{"message": "no"}')

            def reply(self, status, data):
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair)
        self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self):
        self.released.set()
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def server(pair):
    made = Server(pair)
    yield made
    made.stop()


@pytest.fixture
def api(server, pair, tmp_path):
    (tmp_path / "token").write_text("one\n")
    return Api("127.0.0.1", server.http.server_port, str(tmp_path / "token"), str(pair))


def change(kind, version):
    return {"type": kind, "object": {"metadata": {"name": "n", "resourceVersion": version}}}


def version(node):
    return node and node["metadata"]["resourceVersion"]


def test_list_then_watch_from_there_and_bookmarks_move_it_on(api, server):
    server.watches = [[change("MODIFIED", "6"), change("BOOKMARK", "9"), change("DELETED", "10")]]
    server.hold = True
    found = api.follow("n")
    assert [version(next(found)) for _dummy in range(3)] == ["5", "6", None]
    assert server.seen[0] == {"fieldSelector": "metadata.name=n"}
    assert server.seen[1]["resourceVersion"] == "5"
    assert server.seen[1]["allowWatchBookmarks"] == "true"
    assert api.requests == 2


def test_a_watch_that_expired_ends_so_that_the_caller_lists_again(api, server):
    server.watches = [[{"type": "ERROR", "object": {"code": 410}}]]
    found = api.follow("n")
    assert version(next(found)) == "5"
    with pytest.raises(StopIteration):
        next(found)


def test_a_watch_that_is_ended_at_once_is_lost_and_no_storm(api, server):
    found = api.follow("n")
    next(found)
    with pytest.raises(Lost, match="ended at once"):
        next(found)
    assert api.requests == 2


def test_close_ends_a_silent_watch_from_another_thread(api, server):
    server.hold = True
    found = api.follow("n")
    next(found)
    threading.Timer(0.3, api.close).start()
    began = time.monotonic()
    with pytest.raises(Lost):
        next(found)
    assert time.monotonic() - began < 5


def test_the_token_is_read_for_each_request(api, server, tmp_path):
    api.node("n")
    (tmp_path / "token").write_text("two")
    api.node("n")
    assert server.tokens == ["Bearer one", "Bearer two"]


def test_a_patch_is_a_json_patch_and_its_status_is_told(api, server):
    assert api.patch("/api/v1/nodes/n/status", [{"op": "test"}]) == (422, {"message": "no"})
    assert server.seen[0] == {"kind": "application/json-patch+json", "body": [{"op": "test"}]}


def test_a_list_that_is_refused_says_so(api, server):
    server.status = 403
    with pytest.raises(Lost, match="403"):
        next(api.follow("n"))


def test_nobody_there_and_no_token_are_lost_not_a_traceback(pair, tmp_path):
    (tmp_path / "token").write_text("one")
    with pytest.raises(Lost, match=r"PATCH /api"):
        Api("127.0.0.1", 1, str(tmp_path / "token"), str(pair)).patch("/api", [])
    with pytest.raises(Lost, match="token"):
        Api("127.0.0.1", 1, str(tmp_path / "missing"), str(pair)).node("n")


def test_a_server_with_another_ca_is_not_spoken_to(server, tmp_path):
    import certifi

    (tmp_path / "token").write_text("secret")
    api = Api("127.0.0.1", server.http.server_port, str(tmp_path / "token"), certifi.where())
    with pytest.raises(Lost, match="certificate"):
        api.node("n")
    assert server.tokens == []
