"""The HTTP server: checks who asks, and answers with a file of the page or with JSON. It only ever reads."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from grpo_zero.dashboard.api import Api, NotFound
from grpo_zero.dashboard.assets import CHARTS, CONTENT_TYPES, page_files
from grpo_zero.dashboard.security import HEADERS, Gate

WRONG_HOST = "This server does not go by that name: open the address that `grpo-zero dashboard` printed."
NO_TOKEN = "This dashboard asks for a token: open the address that `grpo-zero dashboard` printed, token included."

EVERYWHERE = ("", "0.0.0.0", "::")
"""Addresses that stand for all of the machine's."""


class DashboardServer(ThreadingHTTPServer):
    """Serves the runs at some paths.

    Args:
        paths: run folders, or folders of run folders.
        host: address to listen at.
        port: 0 takes any free one.
    """

    daemon_threads = True

    def __init__(self, paths: Sequence[Path], host: str, port: int) -> None:
        self.api, self.files = Api(paths), page_files()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), Handler)
        self.gate = Gate(host, self.server_port)

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that goes away in the middle is no error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    @property
    def url(self) -> str:
        """Where to open it, token included."""
        host = socket.gethostname() if self.gate.host in EVERYWHERE else self.gate.host
        host = f"[{host}]" if ":" in host else host
        token = f"?token={self.gate.token}" if self.gate.token else ""
        return f"http://{host}:{self.server_port}/{token}"


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: DashboardServer
    protocol_version = "HTTP/1.1"
    server_version = "grpo-zero"
    sys_version = ""
    timeout = 60.0

    def do_HEAD(self) -> None:
        """As GET, without the content."""
        self.do_GET()

    def do_GET(self) -> None:
        """The page, a file of it, or an answer under /api/."""
        gate = self.server.gate
        if not gate.knows_host(self.headers.get("Host")):
            return self.reply_text(HTTPStatus.FORBIDDEN, WRONG_HOST)
        address = urlsplit(self.path)
        parameters = {name: values[-1] for name, values in parse_qs(address.query).items()}
        if gate.token and "token" in parameters and gate.has_token(parameters["token"]):
            # Kept in a cookie and taken out of the address, where history and bookmarks would show it.
            return self.reply(
                HTTPStatus.SEE_OTHER, b"", "text/plain", {"Location": "/", "Set-Cookie": gate.cookie_header()}
            )
        if not gate.may_enter(self.headers.get("Cookie")):
            return self.reply_text(HTTPStatus.UNAUTHORIZED, NO_TOKEN)
        name = address.path.removeprefix("/")
        if name.startswith("api/"):
            return self.answer(name.removeprefix("api/"), parameters)
        return self.send_page_file(name)

    def answer(self, route: str, parameters: dict[str, str]) -> None:
        """JSON from the api."""
        function = self.server.api.routes.get(route)
        try:
            if function is None:
                raise NotFound("There is no such address.")
            status, found = HTTPStatus.OK, function(parameters)
        except NotFound as error:
            status, found = HTTPStatus.NOT_FOUND, {"error": str(error)}
        content = json.dumps(found, ensure_ascii=True).encode()
        self.reply(status, content, "application/json", {"Cache-Control": "no-store"})

    def send_page_file(self, name: str) -> None:
        """One of the known files; a name is looked up, never joined to a path."""
        path = self.server.files.get(name)
        if path is None:
            return self.reply_text(HTTPStatus.NOT_FOUND, "There is no such page.")
        stat = path.stat()
        tag = f'"{stat.st_size:x}-{stat.st_mtime_ns:x}"'
        caching = {"ETag": tag, "Cache-Control": "max-age=86400" if name == CHARTS else "no-cache"}
        if self.headers.get("If-None-Match") == tag:
            return self.reply(HTTPStatus.NOT_MODIFIED, b"", CONTENT_TYPES[path.suffix], caching)
        return self.reply(HTTPStatus.OK, path.read_bytes(), CONTENT_TYPES[path.suffix], caching)

    def reply_text(self, status: HTTPStatus, text: str) -> None:
        """A sentence for a person."""
        self.reply(status, text.encode(), "text/plain; charset=utf-8", {"Cache-Control": "no-store"})

    def reply(self, status: HTTPStatus, content: bytes, content_type: str, more: dict[str, str]) -> None:
        """Status, headers and content."""
        self.send_response(status)
        for name, value in {**HEADERS, **more, "Content-Type": content_type}.items():
            self.send_header(name, value)
        if status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: the console says where the page is, and stays readable."""
