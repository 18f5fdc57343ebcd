"""A door before a storage server that lets in what roles on objects and on reading a bucket allow.

Those are roles/storage.objectUser, and roles/storage.legacyBucketReader for storage.buckets.get.
"""

import re
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

BUCKET_ITSELF = re.compile(r"/storage/v1/b(/[^/?]+)?/?(\?.*)?")
OF_THE_CONNECTION = {"host", "connection", "content-length", "transfer-encoding"}
REFUSAL = b'{"error": {"code": 403, "message": "the roles change no bucket"}}'


@contextmanager
def door(server_url):
    """Its URL, and the buckets themselves that were asked for."""
    asked = []
    with httpx.Client(base_url=server_url, timeout=60, trust_env=False) as server:

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                bucket = BUCKET_ITSELF.fullmatch(self.path)
                if bucket and bucket[1]:
                    asked.append(bucket[1].strip("/"))
                if bucket and (self.command != "GET" or not bucket[1]):
                    self._send(403, {"Content-Type": "application/json"}, REFUSAL)
                    return
                request = server.build_request(
                    self.command, self.path, headers=_kept(self.headers), content=body
                )
                answer = server.send(request, stream=True)
                content = b"".join(answer.iter_raw())
                answer.close()
                self._send(answer.status_code, _kept(answer.headers), content)

            # The names that the base looks for.
            do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815

            def _send(self, status, headers, content):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value.replace(server_url, url))
                self.send_header("Content-Length", str(len(content)))
                with suppress(ConnectionError):  # who got another answer first waits for none
                    self.end_headers()
                    if self.command != "HEAD":
                        self.wfile.write(content)

            def log_message(self, format, *args):  # noqa: A002 # the base's names
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
            url = f"http://127.0.0.1:{listener.server_port}"
            threading.Thread(target=listener.serve_forever, daemon=True).start()
            yield url, asked
            listener.shutdown()


def _kept(headers):
    return {key: value for key, value in headers.items() if key.lower() not in OF_THE_CONNECTION}
