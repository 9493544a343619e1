"""A web server on the loopback interface that does what a test wants it to do wrong."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Server:
    """What is served, what goes wrong, and what was asked for."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    etag: str = '"1"'
    cut_after: list[int] = field(default_factory=list)  # bytes of each coming answer, then whole
    statuses: list[int] = field(default_factory=list)  # of each coming answer, then 200 or 206
    ranges: list[str | None] = field(default_factory=list)  # Range of each request so far
    content_length: int | None = None  # a wrong one; negative: none at all


class Handler(BaseHTTPRequestHandler):
    state: Server

    def do_GET(self) -> None:
        state = self.state
        state.ranges.append(self.headers.get("Range"))
        content = state.files.get(self.path)
        status = state.statuses.pop(0) if state.statuses else 200
        if content is None or status != 200:
            self.send_error(404 if content is None else status)
            return
        start = 0
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if asked and self.headers.get("If-Range") == state.etag:
            start = int(asked.group(1))
        if start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("ETag", state.etag)
        length = len(content) - start if state.content_length is None else state.content_length
        if length >= 0:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        end = state.cut_after.pop(0) if state.cut_after else len(content)
        self.wfile.write(content[start : start + end])

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
