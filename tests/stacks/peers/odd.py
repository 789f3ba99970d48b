"""A server on bare sockets that does what others only do on bad days: `odd.py WAY`.

WAY says how connections get to whom answers them; the path of a request says how it is answered.
"""

import ctypes
import io
import itertools
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
import zlib

from answer import Plan, Writes, announce, now, truth


# What is answered before the request's body was read.
UNREAD = ("/too_large", "/gives_up", "/refuses", "/lingers_not")


class Request:
    """One request, read a line or a body at a time."""

    def __init__(self, conn, file):
        line = file.readline().decode("latin-1")
        if not line.strip():
            raise EOFError
        self.method, self.path, self.version = line.split()
        self.headers, self.body = {}, b""
        while (line := file.readline().decode("latin-1").strip()) != "":
            name, value = line.split(":", 1)
            self.headers[name.lower()] = value.strip()
        self.id = self.headers.get("x-request-id")
        if self.path in UNREAD:
            self.plan = Plan(self.method, self.path, b"")
            return
        if self.headers.get("expect", "").lower() == "100-continue":
            conn.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self.headers.get("transfer-encoding") == "chunked":
            while size := int(file.readline().split(b";")[0], 16):
                self.body += file.read(size)
                file.readline()
            while file.readline().strip():
                pass
        else:
            self.body = file.read(int(self.headers.get("content-length", 0)))
        self.plan = Plan(self.method, self.path, self.body)


class Answer:
    """Writes an answer and notes when."""

    def __init__(self, conn, request):
        self.conn, self.request, self.plan, self.writes = conn, request, request.plan, Writes()

    def send(self, data, mark=None):
        before = now()
        self.conn.sendall(data)
        self.writes.wrote(data if mark is None else mark, before, now())

    def head(self, status="200 OK", *lines):
        self.send("\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode())

    def truth(self):
        truth(self.request.id, self.plan, self.writes)


def chunk(data, extension=b""):
    return b"%x%s\r\n%s\r\n" % (len(data), extension, data)


EVENTS = ("content-type: text/event-stream", "transfer-encoding: chunked")


def ordinary(answer):
    plan = answer.plan
    if plan.streaming:
        answer.head("200 OK", *EVENTS)
        for piece in plan.pieces:
            answer.send(chunk(piece))
        answer.send(b"0\r\n\r\n")
    else:
        body = plan.pieces[0]
        answer.head(f"{plan.status} Status", "content-type: application/json", f"content-length: {len(body)}")
        answer.send(body)


def bodyless(answer):
    """What 204, 304 and answers to HEAD have in common. A length is allowed and says nothing."""
    status = {"/none": "204 No Content", "/same": "304 Not Modified"}.get(answer.plan.path, "200 OK")
    answer.plan.status = int(status[:3])
    answer.head(status, *(() if status[0:3] == "204" else ("content-length: 77",)), "x-a: b")


def extensions(answer):
    answer.head("200 OK", *EVENTS, "trailer: x-sum")
    for piece in answer.plan.pieces:
        answer.send(chunk(piece, b';name="a;b"; other'))
    answer.send(b"0;last=1\r\nx-sum: 1\r\nx-more: 2\r\n\r\n")


def until_close(answer):
    answer.head("200 OK", EVENTS[0], "connection: close")
    for piece in answer.plan.pieces:
        answer.send(piece)
    raise EOFError


def one_byte(answer):
    """Every byte of the answer is a write. A content event is written with its last byte."""
    body = b"HTTP/1.1 200 OK\r\n" + "\r\n".join(EVENTS).encode() + b"\r\n\r\n"
    parts = [(body, b""), *((chunk(piece), piece) for piece in answer.plan.pieces), (b"0\r\n\r\n", b"")]
    for data, piece in parts:
        # An event is out with the end of its line. Behind that come the empty line and the end of its chunk.
        complete = len(data) - 4 if piece else -1
        for at in range(len(data)):
            answer.send(data[at : at + 1], piece if at == complete else b"")


def split(answer):
    """Lines of events cut in the middle, and two events in one write."""
    answer.head("200 OK", *EVENTS)
    stream = b"".join(answer.plan.pieces)
    # Where the line of each ends; the empty line behind it may be in another write.
    ends = [total - 2 for total in itertools.accumulate(map(len, answer.plan.pieces))]
    # The whole stream as chunks of 37 bytes, whose ends have nothing to do with those of the events.
    for at in range(0, len(stream), 37):
        ended = [event for event, end in zip(answer.plan.pieces, ends) if at <= end < at + 37]
        before = now()
        answer.conn.sendall(chunk(stream[at : at + 37]))
        after = now()
        for event in ended or [b""]:
            answer.writes.wrote(event, before, after)
    answer.send(b"0\r\n\r\n")


def big(answer):
    """3 MB, the model and the usage at its end."""
    body = answer.plan.pieces[0].replace(b"lorem ", b"lorem " * 70_000)
    # Keys in another order: what matters comes last.
    answer.head("200 OK", "content-type: application/json", f"content-length: {len(body)}")
    answer.send(body)


def gzipped(answer):
    """The answer compressed, each piece of it flushed in a chunk of its own."""
    press = zlib.compressobj(wbits=31)
    answer.head("200 OK", f"content-type: {answer.plan.content_type}", "content-encoding: gzip", EVENTS[1])
    for piece in answer.plan.pieces:
        answer.send(chunk(press.compress(piece) + press.flush(zlib.Z_SYNC_FLUSH)))
    answer.send(chunk(press.flush()) + b"0\r\n\r\n")


def too_large(answer):
    """Refuses without reading the body, and closes."""
    answer.head("413 Payload Too Large", "content-length: 0", "connection: close")
    raise EOFError


def gives_up(answer):
    """Closes after two events, with a part of the request unread."""
    answer.head("200 OK", *EVENTS)
    for _ in range(2):
        answer.send(chunk(b'data: {"choices": [{"delta": {"content": "lorem "}}]}\n\n'))
    raise EOFError


def lingers_not(answer):
    """The same, and throws away what the client has not got."""
    answer.conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    gives_up(answer)


def refuses(answer):
    """Says so in as many words, and closes, with a part of the request unread."""
    answer.head("413 Payload Too Large", "content-type: text/plain", "connection: close")
    answer.send(b"too large")
    raise EOFError


def pauses(answer):
    """Answers, and is busy with something else until a file is there."""
    ordinary(answer)
    while not os.path.exists(answer.request.headers["x-gate"]):
        time.sleep(0.005)


def reluctant(answer):
    """Closes without a word."""
    raise EOFError


def halfway(answer):
    """Closes, as if crashed, after two events."""
    answer.head("200 OK", *EVENTS)
    for piece in answer.plan.pieces[:3]:
        answer.send(chunk(piece))
    raise EOFError


def unmarked(answer):
    """Ends the framing but not the events: the marker and the finish reason are missing."""
    answer.head("200 OK", *EVENTS)
    for piece in answer.plan.pieces[:3]:
        answer.send(chunk(piece))
    answer.send(b"0\r\n\r\n")


def long_events(answer):
    """Tokens in events of 3000 bytes, which say what else each could have been."""
    others = b'"logprobs": [' + b", ".join([b'{"token": "x", "logprob": -1.25}'] * 85) + b'], "finish_reason"'
    answer.head("200 OK", *EVENTS)
    for piece in answer.plan.pieces:
        answer.send(chunk(piece.replace(b'"finish_reason"', others) if b"lorem" in piece else piece))
        time.sleep(0.002)
    answer.send(b"0\r\n\r\n")


def failing(answer):
    """An error in the middle of a stream, behind which the server closes."""
    answer.head("200 OK", *EVENTS)
    for piece in answer.plan.pieces[:-1]:
        answer.send(chunk(piece))
    answer.truth()
    raise EOFError


def failing_slowly(answer):
    """The same, but it is the client that closes."""
    answer.head("200 OK", *EVENTS)
    for piece in answer.plan.pieces[:-1]:
        answer.send(chunk(piece))
    answer.truth()
    answer.conn.recv(1)
    raise EOFError


def endless(answer):
    """Goes on until the client leaves."""
    answer.head("200 OK", *EVENTS)
    while True:
        answer.send(chunk(answer.plan.pieces[1]))
        time.sleep(0.002)


def slow(answer):
    time.sleep(float(answer.request.headers.get("x-slow", "0.3")))
    ordinary(answer)


def gated(answer):
    """Answers once a file is there."""
    while not os.path.exists(answer.request.headers["x-gate"]):
        time.sleep(0.005)
    ordinary(answer)


def upgrade(answer):
    answer.head("101 Switching Protocols", "upgrade: websocket", "connection: upgrade")
    answer.plan.status = 101
    answer.truth()
    answer.send(b"\x81\x05hello")
    while answer.conn.recv(4096):
        pass
    raise EOFError


def by_file(answer, send):
    body = answer.plan.pieces[0]
    answer.head("200 OK", "content-type: application/json", f"content-length: {len(body)}")
    with open(os.environ["TRUTH"] + ".body", "w+b") as file:
        file.write(body)
        file.flush()
        before = now()
        send(file.fileno(), answer.conn.fileno(), len(body))
        answer.writes.wrote(b"", before, now())


def sendfile(answer):
    by_file(answer, lambda file, conn, size: os.sendfile(conn, file, 0, size))


def splice(answer):
    def through_pipe(file, conn, size):
        read, write = os.pipe()
        os.splice(file, write, size, offset_src=0)
        os.splice(read, conn, size)
        os.close(read)
        os.close(write)

    by_file(answer, through_pipe)


def coalesced(answer):
    """Three events in a chunk, a chunk in a write."""
    answer.head("200 OK", *EVENTS)
    pieces = answer.plan.pieces
    for at in range(0, len(pieces), 3):
        before = now()
        answer.conn.sendall(chunk(b"".join(pieces[at : at + 3])))
        after = now()
        for piece in pieces[at : at + 3]:
            answer.writes.wrote(piece, before, after)
    answer.send(b"0\r\n\r\n")


def choices(answer):
    """Two choices by turns. The times of all but the first are nobody's gaps."""
    answer.head("200 OK", *EVENTS)
    for piece in answer.plan.pieces:
        for index in (b'"index": 0', b'"index": 1'):
            is_first = not answer.writes.content
            answer.send(chunk(piece.replace(b'"index": 0', index)), piece if is_first else b"")
            if b"[DONE]" in piece:
                break
    answer.send(b"0\r\n\r\n")


def digest(answer):
    """Says what came, and how much."""
    # It brings OpenSSL along, which not every test wants.
    import hashlib

    body = answer.request.body
    said = f"{hashlib.sha256(body).hexdigest()} {len(body)}\n".encode()
    answer.head("200 OK", "content-type: text/plain", f"content-length: {len(said) + len(body)}")
    answer.send(said + body)


def segments(answer):
    """One call of many segments: 20 for each event of a stream, 60 else."""
    plan = answer.plan
    if plan.streaming:
        answer.head("200 OK", *EVENTS)
        for piece in plan.pieces:
            data = chunk(piece)
            step = -(-len(data) // 20)
            before = now()
            answer.conn.sendmsg([data[at : at + step] for at in range(0, len(data), step)])
            answer.writes.wrote(piece, before, now())
        answer.send(b"0\r\n\r\n")
    else:
        body = plan.pieces[0]
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        data = head.encode() + body
        step = -(-len(data) // 60)
        before = now()
        answer.conn.sendmsg([data[at : at + step] for at in range(0, len(data), step)])
        answer.writes.wrote(b"", before, now())


def short_writes(answer):
    """A large answer through a small buffer, without blocking: calls that take a part, and calls that are refused."""
    answer.conn.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    answer.conn.setblocking(False)
    body = answer.plan.pieces[0].replace(b"lorem ", b"lorem " * 20_000)
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    left = memoryview(head.encode() + body)
    while left:
        before = now()
        try:
            left = left[answer.conn.send(left) :]
            answer.writes.wrote(b"", before, now())
        except BlockingIOError:
            select.select([], [answer.conn], [])
    answer.conn.setblocking(True)


class Reader(io.RawIOBase):
    """Reads with another call each time, and looks first without taking."""

    def __init__(self, conn):
        self.conn, self.turn = conn, 0

    def readable(self):
        return True

    def readinto(self, buffer):
        self.conn.recv(100, socket.MSG_PEEK)
        room = memoryview(buffer)
        parts = [part for part in (room[:50], room[50:90], room[90:5000]) if part]
        self.turn += 1
        if self.turn % 3 == 0:
            return self.conn.recvmsg_into(parts)[0]
        if self.turn % 3 == 1:
            return os.readv(self.conn.fileno(), parts)
        return self.conn.recv_into(room)


class Splicer(io.RawIOBase):
    """Reads heads, each sent in one piece, as usual, and bodies through a pipe."""

    def __init__(self, conn):
        self.conn = conn

    def readable(self):
        return True

    def readinto(self, buffer):
        room = memoryview(buffer)
        seen = self.conn.recv(len(room), socket.MSG_PEEK)
        if not seen or seen.startswith(b"POST "):
            return self.conn.recv_into(room[: seen.find(b"\r\n\r\n") + 4] if seen else room)
        read, write = os.pipe()
        size = os.splice(self.conn.fileno(), write, len(room))
        os.readv(read, [room[:size]])
        os.close(read)
        os.close(write)
        return size


PATHS = {
    "/segments": segments,
    "/coalesced": coalesced,
    "/choices": choices,
    "/digest": digest,
    "/short_writes": short_writes,
    "/none": bodyless,
    "/same": bodyless,
    "/extensions": extensions,
    "/until_close": until_close,
    "/one_byte": one_byte,
    "/split": split,
    "/big": big,
    "/gzip": gzipped,
    "/reluctant": reluctant,
    "/too_large": too_large,
    "/gives_up": gives_up,
    "/lingers_not": lingers_not,
    "/refuses": refuses,
    "/pauses": pauses,
    "/halfway": halfway,
    "/unmarked": unmarked,
    "/long_events": long_events,
    "/failing": failing,
    "/failing_slowly": failing_slowly,
    "/endless": endless,
    "/slow": slow,
    "/gated": gated,
    "/upgrade": upgrade,
    "/sendfile": sendfile,
    "/splice": splice,
}


def way_of(request):
    first = "/" + request.path.split("?")[0].split("/")[1]
    return bodyless if request.method == "HEAD" else PATHS.get(first, ordinary)


def serve(conn, answering=lambda conn, request: conn, file=None):
    """Answers the requests of a connection. `answering` may put another socket in place for the answer."""
    if conn.family != socket.AF_UNIX:
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    file = file or conn.makefile("rb", buffering=1 << 16)
    try:
        while True:
            request = Request(conn, file)
            answer = Answer(answering(conn, request), request)
            way_of(request)(answer)
            answer.truth()
            if request.version == "HTTP/1.0" or request.headers.get("connection") == "close":
                break
    except (EOFError, OSError, ValueError):
        pass
    finally:
        file.close()
        conn.close()


def accept_forever(listener, handle):
    while True:
        conn, _ = listener.accept()
        handle(conn)


def threads(listener):
    accept_forever(listener, lambda conn: threading.Thread(target=serve, args=(conn,), daemon=True).start())


def tls_context():
    # Not before it is needed: some tests are about when the library is loaded.
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.environ["TLS_CERT"], os.environ["TLS_KEY"])
    return context


def tls(listener):
    """The same over TLS, on the socket itself."""
    context = tls_context()
    wrapped = lambda conn: serve(context.wrap_socket(conn, server_side=True))
    accept_forever(listener, lambda conn: threading.Thread(target=wrapped, args=(conn,), daemon=True).start())


def tls_late(listener):
    """In clear, and over TLS with a library that is loaded when the first client speaks it."""
    loaded = []

    def either(conn):
        if conn.recv(1, socket.MSG_PEEK) == b"\x16":
            if not loaded:
                loaded.append(tls_context())
            conn = loaded[0].wrap_socket(conn, server_side=True)
        serve(conn)

    accept_forever(listener, lambda conn: threading.Thread(target=either, args=(conn,), daemon=True).start())


def tls_exec(listener):
    """Over TLS on one thread, and on a signal another image of the same, which lays out its memory alike."""
    signal.signal(signal.SIGUSR1, lambda *_: again(listener))
    context = tls_context()

    accept_forever(listener, lambda conn: serve(context.wrap_socket(conn, server_side=True)))


def again(listener):
    os.set_inheritable(listener.fileno(), True)
    os.execv(sys.executable, [sys.executable, __file__, "tls_exec", str(listener.fileno())])


def reads(listener):
    """Requests are read by every call there is."""
    accept_forever(listener, lambda conn: serve(conn, file=io.BufferedReader(Reader(conn), 8192)))


def splices(listener):
    """Bodies of requests never are in a buffer that was read into from the socket."""
    accept_forever(listener, lambda conn: serve(conn, file=io.BufferedReader(Splicer(conn), 8192)))


def one_by_one(listener):
    accept_forever(listener, serve)


def no_listener(listener):
    """Takes two connections, and nothing listens any more when their first bytes come."""
    conns = [listener.accept()[0] for _ in range(2)]
    listener.close()
    with open(os.environ["TRUTH"] + ".closed", "w"):
        pass
    for conn in conns:
        threading.Thread(target=serve, args=(conn,), daemon=True).start()
    signal.pause()


def only_client(listener):
    """A client: it listens and connects, and asks where it connected to each time somebody knocks."""
    other = socket.create_connection(("127.0.0.1", int(os.environ["OTHER"])))
    answers = other.makefile("rb")
    while True:
        knock = listener.accept()[0]
        body = b'{"messages":[],"model":"m","max_tokens":8}'
        other.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: o\r\nx-request-id: own\r\n")
        other.sendall(b"content-length: %d\r\n\r\n%s" % (len(body), body))
        while (line := answers.readline()) != b"\r\n":
            if line.lower().startswith(b"content-length"):
                length = int(line.split(b":")[1])
        answers.read(length)
        knock.close()


def listeners(listener):
    """Listens on a thousand ports more."""
    others = [socket.create_server(("127.0.0.1", 0)) for _ in range(1000)]
    threads(listener if others else None)


def dup(listener):
    """The answer goes through a second descriptor."""

    def handle(conn):
        other = conn.dup()
        threading.Thread(target=serve, args=(conn, lambda *_: other), daemon=True).start()

    accept_forever(listener, handle)


def fork_each(listener):
    """A process for every connection, which lives no longer than that."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    def handle(conn):
        if os.fork() == 0:
            serve(conn)
            os._exit(0)
        conn.close()

    accept_forever(listener, handle)


def fork_answer(listener):
    """The parent reads, a child answers."""

    def child(conn, request):
        if os.fork() == 0:
            answer = Answer(conn, request)
            way_of(request)(answer)
            answer.truth()
            os._exit(0)
        os.wait()
        raise EOFError

    accept_forever(listener, lambda conn: serve(conn, child))


def fork_leave(listener):
    """Of each connection a process reads a request, and ends; its child answers, and reads the next one."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    def leave(conn, request):
        reader = os.getpid()
        if os.fork() > 0:
            os._exit(0)
        while os.getppid() == reader:
            time.sleep(0.001)
        return conn

    def handle(conn):
        if os.fork() == 0:
            serve(conn, leave)
            os._exit(0)
        conn.close()

    accept_forever(listener, handle)


def end_when_asked():
    signal.sigwait({signal.SIGTERM})
    os._exit(0)


def first_thread_ends(listener):
    """On a signal the first thread ends, and leaves the others to serve."""
    exit_thread = 60
    signal.signal(signal.SIGUSR1, lambda *_: ctypes.CDLL(None).syscall(exit_thread, 0))
    # Without that thread, Python runs no handlers: another waits for the signal to end.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=threads, args=(listener,), daemon=True).start()
    threading.Thread(target=end_when_asked, daemon=True).start()
    while True:
        signal.pause()


def prefork(listener):
    """Workers that share the listener; one that ends is replaced."""
    while True:
        workers = set()
        while True:
            while len(workers) < 4:
                pid = os.fork()
                if pid == 0:
                    # PR_SET_PDEATHSIG: a worker does not outlive who would replace it.
                    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
                    one_by_one(listener)
                workers.add(pid)
            workers.discard(os.wait()[0])


def rights(listener):
    """The process that accepts hands the connection to another one and ends; a third takes its place."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        while True:
            _, fds, _, _ = socket.recv_fds(theirs, 1, 1)
            conn = socket.socket(fileno=fds[0])
            threading.Thread(target=serve, args=(conn,), daemon=True).start()
    while True:
        if os.fork() == 0:
            conn, _ = listener.accept()
            socket.send_fds(ours, [b"x"], [conn.fileno()])
            os._exit(0)
        os.wait()


def inherited(listener):
    """The listener goes through `exec` to another image, as from a supervisor that listens for others."""
    os.set_inheritable(listener.fileno(), True)
    os.execv(sys.executable, [sys.executable, __file__, "threads", str(listener.fileno())])


def exec_on_signal(listener):
    """Serves, and on a signal becomes another image that goes on serving."""
    signal.signal(signal.SIGUSR1, lambda *_: inherited(listener))
    threads(listener)


HOST = os.environ.get("HOST", "127.0.0.1")


def main():
    way = sys.argv[1]
    if len(sys.argv) > 2:
        listener = socket.socket(fileno=int(sys.argv[2]))
    elif path := os.environ.get("UDS"):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(1024)
    else:
        listener = socket.create_server((HOST, int(os.environ.get("PORT", 0))), backlog=1024)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if way != "inherited":
        announce(0 if listener.family == socket.AF_UNIX else listener.getsockname()[1])
    globals()[way](listener)


main()
