"""TLS connections on one thread, each read within the read of another: `tls_within.py COUNT`.

OpenSSL tells its program of a record before it gives its plaintext. The program, whose ciphertext lies in buffers in
memory, then reads the next connection, and so on. Each request is answered when all are read.
"""

import os
import signal
import socket
import ssl
import sys

from answer import announce


class Connection:
    def __init__(self, sock, context):
        self.sock, self.incoming, self.outgoing = sock, ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.flush()
                self.receive()
        self.flush()

    def receive(self):
        self.incoming.write(self.sock.recv(65536))

    def flush(self):
        if data := self.outgoing.read():
            self.sock.sendall(data)

    def answer(self):
        body = b'{"model":"within","choices":[{"message":{"content":"lorem"},"finish_reason":"stop"}]}'
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self.tls.write(head % len(body) + body)
        self.flush()


def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.environ["TLS_CERT"], os.environ["TLS_KEY"])
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    listener = socket.create_server(("127.0.0.1", 0))
    announce(listener.getsockname()[1])
    connections, requests = [], {}

    def read(number):
        requests[number] = b""
        requests[number] = connections[number].tls.read(65536)

    def within(tls, direction, *_):
        """What OpenSSL calls, once the first read has begun."""
        number = next((n for n, connection in enumerate(connections) if connection.tls is tls), None)
        if direction == "read" and number is not None and number + 1 < len(connections):
            if number in requests and number + 1 not in requests:
                read(number + 1)

    context._msg_callback = within
    for _ in range(int(sys.argv[1])):
        connections.append(Connection(listener.accept()[0], context))
    for connection in connections:
        connection.receive()
    read(0)
    assert len(requests) == len(connections) and all(requests.values()), requests
    for connection in connections:
        connection.answer()
    signal.pause()


main()
