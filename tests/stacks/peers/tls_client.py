"""A client over TLS: `tls_client.py PORT COUNT CONCURRENCY KEEP_ALIVE PREFIX OUT`.

Each of its clients sends one request after the other; a line per request says what the client saw. Certificates are
not checked: the peer made its own. Lengths decide how a request ends, see answer.py.
"""

import asyncio
import json
import ssl
import sys
import time

LENGTHS = [8, 5, 12, 3, 9, 6, 16, 4, 7, 10]
MARK = b"lorem"

now = time.monotonic_ns


def request(name, number, keep):
    body = json.dumps({
        "model": "tls-model",
        "messages": [{"role": "user", "content": "hello " * (1 + number * 37 % 400)}],
        "max_tokens": LENGTHS[number % len(LENGTHS)],
        "stream": number % 5 != 4,
    }).encode()
    head = (
        f"POST /v1/chat/completions?n={number} HTTP/1.1\r\nhost: peer\r\nx-request-id: {name}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        f"connection: {'keep-alive' if keep else 'close'}\r\n\r\n"
    )
    return head.encode() + body


async def answer(reader, seen):
    """Reads one answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    seen["status"] = int(head.split()[1])
    if b"transfer-encoding: chunked" not in head:
        await reader.readexactly(int(head.split(b"content-length:")[1].split()[0]))
        seen["t_last_byte"] = now()
        return
    while size := int(await reader.readline(), 16):
        chunk = await reader.readexactly(size + 2)
        if MARK in chunk:
            seen.setdefault("t_first_token", now())
    await reader.readline()
    seen["t_last_byte"] = now()


async def client(port, keep, numbers, prefix, out):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = None
    for number in numbers:
        name = f"{prefix}-{number}"
        if connection is None:
            connection = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        reader, writer = connection
        seen = {"request_id": name, "outcome": "ok", "t_send": now()}
        writer.write(request(name, number, keep))
        await writer.drain()
        await answer(reader, seen)
        out.write(json.dumps(seen) + "\n")
        if not keep:
            writer.close()
            connection = None
    if connection:
        connection[1].close()
        await connection[1].wait_closed()


async def main():
    port, count, concurrency, keep = (int(text) for text in sys.argv[1:5])
    numbers = iter(range(count))
    with open(sys.argv[6], "w", encoding="utf-8") as out:
        await asyncio.gather(*(client(port, keep, numbers, sys.argv[5], out) for _ in range(concurrency)))


asyncio.run(main())
