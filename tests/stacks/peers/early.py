"""A client whose request comes with its first segment (TCP Fast Open): `early.py PORT ID NEXT_ID GATE`.

It does not see the server's answer to that segment until the file GATE is there, so that the handshake is complete only
then. It then reads the answer to its request, and has another one answered.
"""

import ctypes
import json
import os
import socket
import struct
import sys
import time

SO_ATTACH_FILTER, SO_DETACH_FILTER, MSG_FASTOPEN = 26, 27, 0x20000000


def request(request_id):
    body = json.dumps({"model": "early-model", "max_tokens": 8, "messages": []})
    lines = ["POST /v1/chat/completions HTTP/1.1", "host: peer", f"x-request-id: {request_id}"]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", body]).encode()


def answer(sock):
    data = b""
    while not data.endswith(b"}}"):
        part = sock.recv(65536)
        assert part, data
        data += part


def main():
    port, early, later, gate = int(sys.argv[1]), *sys.argv[2:]
    sock = socket.socket()
    # One instruction: nothing comes through.
    program = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program)))
    # A call that waits would wait for the handshake.
    sock.setblocking(False)
    data = request(early)
    assert sock.sendto(data, MSG_FASTOPEN, ("127.0.0.1", port)) == len(data), "not sent with the first segment"
    while not os.path.exists(gate):
        time.sleep(0.005)
    sock.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
    sock.setblocking(True)
    answer(sock)
    sock.sendall(request(later))
    answer(sock)


main()
