"""What a request is, before anybody answers it: service, operation, caller, parameters."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, quote, unquote

from botocore.exceptions import UnknownServiceError

from lab.aws.restjson import SESSION, Router, parse_params

_SCOPE = re.compile(r"Credential=([^/,\s]+)/\d{8}/([^/]+)/([^/]+)/aws4_request")
_routers: dict[str, Router | None] = {}
_lock = threading.Lock()
# Long values (user data, documents, policies) would fill the record of calls.
_LONGEST = 300


@dataclass
class Request:
    """One call as it came in."""

    method: str
    path: str
    query: str
    body: bytes
    service: str = ""
    operation: str = ""
    region: str = "us-east-1"
    access_key: str = ""
    protocol: str = ""
    params: dict[str, Any] = field(default_factory=dict)


def _router(service: str) -> Router | None:
    with _lock:
        if service not in _routers:
            try:
                model = SESSION.get_service_model(service)
                rest = model.metadata["protocol"].startswith("rest-")
                _routers[service] = Router(service) if rest else None
            except UnknownServiceError:
                _routers[service] = None
        return _routers[service]


def read(environ: dict[str, Any], body: bytes) -> Request:
    """The request of a WSGI environment, whose body was read already."""
    path = environ.get("RAW_URI") or environ.get("REQUEST_URI")
    path = path.partition("?")[0] if path else quote(environ.get("PATH_INFO", "/"))
    query = environ.get("QUERY_STRING", "")
    request = Request(environ["REQUEST_METHOD"], path, query, body)
    credential = environ.get("HTTP_AUTHORIZATION", "")
    if not credential and "X-Amz-Credential" in query:
        # A presigned URL carries in its query what a header says otherwise.
        credential = "Credential=" + parse_qs(query)["X-Amz-Credential"][0]
    if match := _SCOPE.search(unquote(credential)):
        request.access_key, request.region, request.service = match.groups()
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    if target:
        request.protocol, request.operation = "json", target.rpartition(".")[2]
        request.params = _json(body)
    elif "Action=" in query or body.startswith(b"Action=") or b"&Action=" in body:
        form = parse_qs(query or "") | parse_qs(body.decode("utf-8", errors="replace"))
        request.protocol = "ec2" if request.service == "ec2" else "query"
        request.operation = form.get("Action", [""])[0]
        skipped = ("Action", "Version")
        request.params = {k: v[0] for k, v in form.items() if k not in skipped}
    elif router := _router(request.service):
        _rest(request, router)
    return request


def _rest(request: Request, router: Router) -> None:
    request.protocol = router.model.metadata["protocol"]
    if found := router.resolve(request.method, request.path):
        operation, uri = found
        request.operation = operation.name
        request.params = dict(uri)
        if request.protocol == "rest-json":
            try:
                request.params = parse_params(operation, uri, request.query, request.body)
            except Exception:
                # The service itself refuses it; the record keeps what is known.
                request.params = {**uri, **_json(request.body)}


def _json(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body or b"{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def short(value: Any) -> Any:
    """The same value with its long strings cut."""
    if isinstance(value, str) and len(value) > _LONGEST:
        return value[:_LONGEST] + "..."
    if isinstance(value, dict):
        return {key: short(item) for key, item in value.items()}
    if isinstance(value, list):
        return [short(item) for item in value]
    return value


def error_answer(request: Request, code: str, status: int, message: str) -> tuple[str, bytes]:
    """(content type, body) of an error in the request's own protocol."""
    if request.protocol in ("json", "rest-json"):
        body = {"__type": code, "message": message}
        return "application/x-amz-json-1.1", json.dumps(body).encode()
    inner = f"<Code>{code}</Code><Message>{message}</Message>"
    if request.protocol == "ec2":
        errors = f"<Errors><Error>{inner}</Error></Errors>"
        xml = f"<Response>{errors}<RequestID>lab</RequestID></Response>"
    elif request.protocol == "rest-xml":
        xml = f"<Error>{inner}<RequestId>lab</RequestId></Error>"
    else:
        xml = (
            f"<ErrorResponse><Error><Type>Sender</Type>{inner}</Error><RequestId>lab</RequestId>"
            "</ErrorResponse>"
        )
    return "text/xml", xml.encode()
