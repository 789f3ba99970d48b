"""HTTP/2 on hypercorn: the application of `asgi.py`, whose writes others stamp (`stamp.c`). In clear, or over TLS with
TLS_CERT and TLS_KEY.
"""

import asyncio
import os
import signal
import socket
import time

from hypercorn.asyncio import serve
from hypercorn.config import Config

from answer import TOKEN_INTERVAL_S, Plan, Writes, announce, gate, truth


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return
    headers = {name: value.decode() for name, value in scope["headers"]}
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    request_id = headers.get(b"x-request-id", "")
    if scope["path"].startswith("/stall/"):
        # Nobody is served meanwhile.
        time.sleep(0.2)
    plan = Plan(scope["method"], scope["path"], body, request_id)
    try:
        await answer(plan, headers.get(b"x-gate"), send)
    finally:
        truth(request_id, plan, Writes())


async def answer(plan, gated, send):
    start = {"type": "http.response.start", "status": plan.status}
    await send({**start, "headers": [(b"content-type", plan.content_type.encode())]})
    for number, piece in enumerate(plan.pieces):
        if number == 2 and gated:
            await gate(gated)
        await asyncio.sleep(TOKEN_INTERVAL_S if plan.streaming else 0)
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def main():
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    config = Config()
    config.graceful_timeout = 1
    config.certfile, config.keyfile = os.environ.get("TLS_CERT"), os.environ.get("TLS_KEY")
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    announce(listener.getsockname()[1])
    config.bind = [f"fd://{listener.detach()}"]
    await serve(app, config, shutdown_trigger=stop.wait)


asyncio.run(main())
