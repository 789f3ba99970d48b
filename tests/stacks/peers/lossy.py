"""A link that is slow and loses some of what it carries, and who speaks over it: `lossy.py DELAY_S COUNT`.

Both ends are in network namespaces of their own, each with a TUN device; this program carries packets between them,
each DELAY_S later. Of the segments of every second answer it drops one in three, once each. The server is `odd.py`;
its process is in GATE.server. Once GATE is there, a client asks COUNT times; what was dropped and when the client had
all of an answer goes to SEEN.
"""

import ctypes
import fcntl
import json
import os
import queue
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

from answer import now

CLONE_NEWNET, PR_SET_PDEATHSIG = 0x40000000, 1
TUNSETIFF, IFF_TUN_NO_PI = 0x400454CA, 0x1001
LIBC = ctypes.CDLL(None, use_errno=True)
SERVER, CLIENT, PORT = "10.99.0.1", "10.99.0.2", 8000

delay, count = float(sys.argv[1]), int(sys.argv[2])
# What is being carried: the number of the answer, and what was dropped of it.
state = {"losing": False, "dropped": 0, "seen": set(), "turn": 0}


def device(own, other):
    """A new namespace for this thread, with one end of the link in it."""
    if LIBC.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "no network namespace")
    fd = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", b"tun-link", IFF_TUN_NO_PI))
    for words in (f"addr add {own} peer {other} dev tun-link", "link set tun-link up", "link set lo up"):
        subprocess.run(["ip", *words.split()], check=True)
    return fd


def is_lost(packet):
    """A segment of an answer that is to be dropped."""
    head = (packet[0] & 15) * 4
    if not state["losing"] or packet[0] >> 4 != 4 or packet[9] != socket.IPPROTO_TCP:
        return False
    data = len(packet) - head - (packet[head + 12] >> 4) * 4
    sequence = packet[head + 4 : head + 8]
    if data == 0 or sequence in state["seen"]:
        return False
    state["seen"].add(sequence)
    state["turn"] += 1
    if state["turn"] % 3:
        return False
    state["dropped"] += 1
    return True


def carry(source, target, loses):
    line = queue.Queue()

    def deliver():
        while True:
            due, packet = line.get()
            time.sleep(max(0, due - time.monotonic()))
            os.write(target, packet)

    threading.Thread(target=deliver, daemon=True).start()
    while True:
        packet = os.read(source, 65536)
        if not (loses and is_lost(packet)):
            line.put((time.monotonic() + delay, packet))


def ask(number):
    state.update(losing=number % 2 == 1, dropped=0)
    body = json.dumps({"messages": [], "model": "m", "stream": True, "max_tokens": 12}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: s\r\nx-request-id: l-{number}\r\nconnection: close\r\n"
    with socket.create_connection((SERVER, PORT), timeout=30) as conn:
        conn.sendall(head.encode() + b"content-length: %d\r\n\r\n%s" % (len(body), body))
        got, last = b"", None
        while part := conn.recv(65536):
            got += part
            if last is None and got.endswith(b"0\r\n\r\n"):
                last = now()
                # What comes now is the end of the connection.
                dropped, state["losing"] = state["dropped"], False
    return {"request_id": f"l-{number}", "dropped": dropped, "t_last_byte": last}


def main():
    near = device(SERVER, CLIENT)
    environment = {**os.environ, "HOST": SERVER, "PORT": str(PORT)}
    odd = os.path.join(os.path.dirname(__file__), "odd.py")
    with_me = lambda: LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    server = subprocess.Popen([sys.executable, odd, "threads"], env=environment, preexec_fn=with_me)
    signal.signal(signal.SIGTERM, lambda *_: (server.kill(), os._exit(0)))
    with open(os.environ["GATE"] + ".server", "w") as file:
        file.write(str(server.pid))
    far = device(CLIENT, SERVER)
    for way in ((near, far, True), (far, near, False)):
        threading.Thread(target=carry, args=way, daemon=True).start()
    while not os.path.exists(os.environ["GATE"]):
        time.sleep(0.01)
    seen = [json.dumps(ask(number)) for number in range(count)]
    with open(os.environ["SEEN"] + ".new", "w") as file:
        file.write("\n".join(seen) + "\n")
    os.rename(os.environ["SEEN"] + ".new", os.environ["SEEN"])
    server.wait()


main()
