"""The one layer in front of moto: records calls, makes faults, and routes what we serve ourselves.

/_lab/health, calls, faults, latencies, quotas, authn/<cluster> and what doors.py
opens are the lab's own; service eks and six operations of ssm are ours; the rest is moto's.
"""

from __future__ import annotations

import io
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from lab import LabError
from lab.aws import SERVICE_ACCESS_KEY, Context, ServiceError, quota_patches, routes
from lab.aws.eks import Eks
from lab.aws.identity import principal_of
from lab.doors import Doors
from lab.faults import Faults
from lab.iam import enforce

log = logging.getLogger("lab.front")
_KEPT_CALLS = 50_000
StartResponse = Callable[..., Any]


class Front:
    """A WSGI application over `moto`, with `eks` and Run Command of our own."""

    def __init__(self, moto: Callable[..., Iterable[bytes]], eks: Eks) -> None:
        self.moto = moto
        self.eks = eks
        self.faults = Faults()
        # Set by the daemon, which has the parts that they open to.
        self.doors: Doors | None = None
        # moto checks and then sets without a lock of its own; one call at a time costs it nothing.
        self.moto_lock = threading.RLock()
        self._calls: deque[dict[str, Any]] = deque(maxlen=_KEPT_CALLS)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length) if length else b""
        environ["wsgi.input"] = io.BytesIO(body)
        path = environ.get("PATH_INFO", "/")
        if path.startswith("/_lab/"):
            return _send(start_response, *self._lab(environ, path, body))
        return self._aws(environ, start_response, body)

    # -- AWS ----------------------------------------------------------------------------------

    def _aws(
        self, environ: dict[str, Any], start_response: StartResponse, body: bytes
    ) -> Iterable[bytes]:
        began = time.time()
        request = routes.read(environ, body)
        internal = request.access_key == SERVICE_ACCESS_KEY
        context = Context(region=request.region, access_key=request.access_key)
        principal = principal_of(request.access_key, context.partition)
        context = Context(request.region, context.account_id, request.access_key, principal)
        latency, error, needs = 0.0, None, None
        if not internal:
            latency, error = self.faults.decide(request.service, request.operation)
        if latency:
            time.sleep(latency)
        if not internal and not error:
            needs, error = self._authorize(request, context)
        if error:
            kind, text = routes.error_answer(request, *error)
            headers = {"Content-Type": kind, "x-amzn-ErrorType": error[0]}
            answer = _send(start_response, error[1], headers, text)
            status = error[1]
        else:
            status, answer = self._serve(environ, start_response, request, context)
        self._calls.append(
            {
                "time": began,
                "service": request.service,
                "operation": request.operation,
                "principal": principal,
                "access_key": request.access_key,
                "region": request.region,
                "params": routes.short(request.params),
                "status": status,
                "seconds": round(time.time() - began, 4),
                "error": error[0] if error else None,
                **({"needs": needs} if needs is not None else {}),
            }
        )
        return answer

    def _authorize(
        self, request: routes.Request, context: Context
    ) -> tuple[list[dict[str, Any]] | None, tuple[str, int, str] | None]:
        """What IAM says: the permissions that the call wants, where policies bound the caller, and
        the error that denies it."""
        try:
            decision = enforce.decide(request, context, self.eks.registry)
        except Exception as error:
            # As in _serve: a fault of the lab must be seen, and nothing passes by it.
            log.exception("iam: %s %s", request.service, request.operation)
            return None, ("LabFault", 400, f"{error!r}")
        if decision is None:
            return None, None
        return decision.recorded(), decision.error

    def _serve(
        self,
        environ: dict[str, Any],
        start_response: StartResponse,
        request: routes.Request,
        context: Context,
    ) -> tuple[int, Iterable[bytes]]:
        try:
            if request.service == "eks":
                answer = self.eks.dispatch(
                    request.method, request.path, request.query, request.body, context
                )
                return answer[0], _send(start_response, *answer)
            if request.service == "ssm":
                from lab.aws import ssm

                if request.operation in ssm.OPERATIONS:
                    answer = _ssm(ssm, request, context)
                    return answer[0], _send(start_response, *answer)
            return self._moto(environ, start_response)
        except Exception as error:
            # A fault of the lab itself must be seen at once: no SDK repeats a 400.
            log.exception("%s %s", request.service, request.operation)
            kind, text = routes.error_answer(request, "LabFault", 400, f"{error!r}")
            headers = {"Content-Type": kind, "x-amzn-ErrorType": "LabFault"}
            return 400, _send(start_response, 400, headers, text)

    def _moto(
        self, environ: dict[str, Any], start_response: StartResponse
    ) -> tuple[int, Iterable[bytes]]:
        seen: list[str] = []

        def note(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            seen.append(status)
            return start_response(status, headers, *more)

        with self.moto_lock:
            answer = b"".join(self.moto(environ, note))
        return int(seen[0].split()[0]), [answer]

    # -- the lab's own ------------------------------------------------------------------------

    def _lab(
        self, environ: dict[str, Any], path: str, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        method = environ["REQUEST_METHOD"]
        query = parse_qs(environ.get("QUERY_STRING", ""))
        try:
            answer = self._lab_answer(method, path.removeprefix("/_lab/"), query, body)
        except (ValueError, TypeError) as error:
            return _json(400, {"message": str(error)})
        except (ServiceError, LabError) as error:
            return _json(503, {"message": str(error)})
        if answer is None:
            return _json(404, {"message": f"the lab has no {method} {path}"})
        return _json(200, answer)

    def _lab_answer(
        self, method: str, name: str, query: dict[str, list[str]], body: bytes
    ) -> Any | None:
        if name == "health":
            clusters = self.eks.registry.clusters
            return {"ok": True, "clusters": {n: c.record["status"] for n, c in clusters.items()}}
        if name == "calls":
            if method == "DELETE":
                self._calls.clear()
            internal = "internal" in query
            rows = [c for c in self._calls if internal or c["access_key"] != SERVICE_ACCESS_KEY]
            for key in ("service", "operation", "access_key"):
                if key in query:
                    rows = [row for row in rows if row[key] in query[key]]
            return {"calls": rows}
        if name == "faults":
            if method == "POST":
                self.faults.add(json.loads(body))
            elif method == "DELETE":
                self.faults.clear()
            return {"faults": self.faults.rules()}
        if name == "latencies":
            if method == "POST":
                given = {key: float(value) for key, value in json.loads(body).items()}
                if unknown := set(given) - set(self.eks.registry.latencies):
                    raise ValueError(f"unknown states {sorted(unknown)}")
                self.eks.registry.latencies.update(given)
            return dict(self.eks.registry.latencies)
        if name == "quotas":
            return quota_patches.set_quotas(json.loads(body) if method == "POST" else {})
        if self.doors and name == "nodes" and method == "POST":
            return self.doors.nodes(json.loads(body))
        if self.doors and name in ("pods", "clusters") and method in ("GET", "POST"):
            return getattr(self.doors, name)(json.loads(body) if method == "POST" else None)
        if name.startswith("authn/") and method == "POST":
            from lab import authn

            cluster = name.removeprefix("authn/").partition("?")[0]
            return authn.handle_token_review(cluster, json.loads(body), self.eks.registry)
        return None


def _ssm(service: Any, request: routes.Request, context: Context) -> tuple[int, dict, bytes]:
    kind = {"Content-Type": "application/x-amz-json-1.1"}
    try:
        answer = service.handle(request.operation, request.params, context)
        return 200, kind, json.dumps(answer).encode()
    except ServiceError as error:
        body = {"__type": error.code, "message": error.message, **error.fields}
        return 400, kind, json.dumps(body).encode()


def _json(status: int, value: Any) -> tuple[int, dict[str, str], bytes]:
    return status, {"Content-Type": "application/json"}, json.dumps(value).encode()


def _send(
    start_response: StartResponse, status: int, headers: dict[str, str], body: bytes
) -> list[bytes]:
    phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Error"
    all_headers = {**headers, "Content-Length": str(len(body))}
    start_response(f"{status} {phrase}", list(all_headers.items()))
    return [body]
