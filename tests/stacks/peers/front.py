"""A front and its runner, as Ollama has them: `front.py`.

The front speaks one API to clients (NDJSON), the runner, its child, another one to the front (server-sent events), on
connections that the front keeps and shares among its threads. Headers of a request say what the front does with it:
`x-attempts: N` (the first ones are refused by the runner), `x-cached: 1` (no runner), `x-parts: N` (as many questions
to the runner), `x-guard: before|within` (it answers by itself, as an engine does, and asks the runner what it thinks of
that, before its first token or behind its third). `x-look: 1` makes it look after its runner while it answers, `/warm` work in the background for nobody.

Each writes its own truth, the runner to a second file. The runner is told whose request it works on in a query, which
is not recorded.
"""

import ctypes
import http.client
import json
import os
import queue
import signal
import socket
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

from answer import TOKEN_INTERVAL_S, announce, now


class Server(socketserver.ThreadingTCPServer):
    daemon_threads, allow_reuse_address, request_queue_size = True, True, 256


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def body(self):
        return json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")

    def head(self, status, kind):
        """Goes out with the first part of the body."""
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("transfer-encoding", "chunked")
        self.send_header("connection", "keep-alive")
        self.end_headers()

    def part(self, data):
        """One chunk in one write: when."""
        before = now()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        return [before, now()]

    def plain(self, status, data):
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def write_truth(file_name, **line):
    with open(file_name, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


class Runner(Handler):
    refused, lock = {}, threading.Lock()

    def do_GET(self):
        self.plain(200, b'{"status":"ok"}')

    def do_POST(self):
        asked, query = self.body(), parse_qs(urlsplit(self.path).query)
        request_id, attempts = query["id"][0], int(query["attempts"][0])
        with self.lock:
            tried = self.refused.get(request_id, 0)
            self.refused[request_id] = tried + 1
        if tried + 1 < attempts:
            return self.plain(503, b'{"error":{"code":503,"message":"busy","type":"unavailable_error"}}')
        self.head(200, "text/event-stream")
        content = []
        for _ in range(asked["n_predict"]):
            time.sleep(TOKEN_INTERVAL_S)
            content.append(self.part(b'data: {"index":0,"content":"lorem ","tokens":[1],"stop":false}\n\n'))
        done = {"content": "", "stop": True, "stop_type": "limit", "tokens_predicted": asked["n_predict"]}
        done |= {"tokens_evaluated": 9, "timings": {"prompt_n": 9, "predicted_n": asked["n_predict"]}}
        self.part(b"data: " + json.dumps(done).encode() + b"\n\n")
        last = self.part(b"")
        write_truth(
            os.environ["TRUTH"] + ".runner",
            request_id=request_id,
            path="/completion",
            status=200,
            t_first_token_write_ns=content[0],
            t_last_write_ns=last,
            content_write_ns=content,
        )


class Front(Handler):
    pool, runner = queue.LifoQueue(), None

    def ask(self, path, body=None):
        try:
            connection = self.pool.get_nowait()
        except queue.Empty:
            connection = http.client.HTTPConnection("127.0.0.1", self.runner)
            connection.connect()
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.request("POST" if body else "GET", path, body, {"content-type": "application/json"})
        return connection, connection.getresponse()

    def events(self, request_id, tokens, attempts=1):
        """The runner's content events, as they come."""
        body = json.dumps({"prompt": "hello", "n_predict": tokens, "stream": True})
        for _ in range(attempts):
            connection, answer = self.ask(f"/completion?id={request_id}&attempts={attempts}", body)
            if answer.status == 200:
                break
            answer.read()
            self.pool.put(connection)
        while line := answer.readline():
            if line.startswith(b"data: "):
                event = json.loads(line[6:])
                if event["stop"]:
                    break
                yield event["content"]
        answer.read()
        self.pool.put(connection)

    def guarded(self, request_id, tokens, when):
        """Tokens of its own; a guard is asked whether they may go on."""
        for number in range(tokens):
            if number == {"before": 0, "within": 3}[when]:
                list(self.events(f"guard-of-{request_id}", 2))
            time.sleep(TOKEN_INTERVAL_S)
            yield "lorem "

    def do_POST(self):
        asked, said = self.body(), self.headers
        if self.path == "/warm":
            self.plain(200, b"{}")
            threading.Thread(target=lambda: list(self.events("warm", 20)), daemon=True).start()
            return
        tokens, request_id = asked["options"]["num_predict"], said["x-request-id"]
        if said.get("x-look"):
            connection, answer = self.ask("/health")
            answer.read()
            self.pool.put(connection)
        self.head(200, "application/x-ndjson")
        content = []
        line = {"model": asked["model"], "created_at": "2026-01-01T00:00:00Z"}
        for part in range(int(said.get("x-parts", 1))):
            attempts = int(said.get("x-attempts", 1))
            if said.get("x-cached"):
                events = ["lorem "] * tokens
            elif when := said.get("x-guard"):
                events = self.guarded(request_id, tokens, when)
            else:
                events = self.events(f"{request_id}", tokens, attempts)
            for text in events:
                data = json.dumps({**line, "response": text, "done": False}).encode() + b"\n"
                content.append(self.part(data))
        # An engine that leaves out what a guard would tell.
        counts = {} if said.get("x-guard") else {"prompt_eval_count": 9, "eval_count": len(content)}
        done = {**line, "response": "", "done": True, "done_reason": "length", **counts}
        self.part(json.dumps(done).encode() + b"\n")
        last = self.part(b"")
        write_truth(
            os.environ["TRUTH"],
            request_id=request_id,
            method="POST",
            path=self.path,
            model=asked["model"],
            status=200,
            outcome="ok",
            streaming=True,
            t_first_token_write_ns=content[0],
            t_last_write_ns=last,
            content_write_ns=content,
        )


def main():
    runner = Server(("127.0.0.1", 0), Runner)
    Front.runner = runner.server_address[1]
    child = os.fork()
    if child == 0:
        # With its parent, however that ends: PR_SET_PDEATHSIG.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        runner.serve_forever()
    runner.socket.close()
    front = Server(("127.0.0.1", 0), Front)
    signal.signal(signal.SIGTERM, lambda *_: (os.kill(child, signal.SIGTERM), os._exit(0)))
    announce(front.server_address[1])
    front.serve_forever()


main()
