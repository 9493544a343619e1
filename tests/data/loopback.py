"""A web server on the loopback interface that fails where a test wants it to."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Server:
    """What is served, what goes wrong, and what was asked for."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    cut_after: list[int] = field(default_factory=list)  # bytes of each coming answer, then whole
    asked: list[str] = field(default_factory=list)  # path of each request so far


class Handler(BaseHTTPRequestHandler):
    state: Server

    def do_GET(self) -> None:
        state = self.state
        state.asked.append(self.path)
        content = state.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        end = state.cut_after.pop(0) if state.cut_after else len(content)
        self.wfile.write(content[:end])

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    state = Server()
    handler = type("BoundHandler", (Handler,), {"state": state})
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    state.url = f"http://127.0.0.1:{httpd.server_port}"
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield state
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()
