"""ASGI peers on uvicorn: `asgi.py raw|fastapi uvloop|asyncio httptools|h11`; over TLS with TLS_CERT and TLS_KEY.

The stamps are taken around the server's `send`, in a layer around the application, so the server under test is the
real one. uvloop writes what was sent at the end of the turn of its loop: hence the turn between `send` and the stamp.
"""

import asyncio
import os
import signal
import socket
import sys

import uvicorn

from answer import TOKEN_INTERVAL_S, Plan, Writes, announce, now, truth


class Stamped:
    """Notes when what was sent."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        body, writes = bytearray(), Writes()

        async def stamped_receive():
            message = await receive()
            body.extend(message.get("body", b""))
            return message

        async def stamped_send(message):
            before = now()
            await send(message)
            try:
                await asyncio.sleep(0)
            finally:
                # Starlette cancels the sender of a stream as soon as the server has the last of it.
                writes.wrote(message.get("body", b""), before, now())

        await self.app(scope, stamped_receive, stamped_send)
        headers = dict(scope["headers"])
        request_id = headers.get(b"x-request-id", b"").decode()
        truth(request_id, Plan(scope["method"], scope["path"], bytes(body)), writes)


async def raw(scope, receive, send):
    """No framework at all."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    plan = Plan(scope["method"], scope["path"], body)
    headers = [(b"content-type", plan.content_type.encode())]
    if not plan.streaming:
        headers.append((b"content-length", str(len(plan.pieces[0])).encode()))
    await send({"type": "http.response.start", "status": plan.status, "headers": headers})
    if not plan.streaming:
        await send({"type": "http.response.body", "body": plan.pieces[0]})
        return
    for piece in plan.pieces:
        await asyncio.sleep(TOKEN_INTERVAL_S)
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def fastapi_app():
    """Endpoints that are plain functions: FastAPI runs them, and their streams, on threads."""
    import json
    import time

    from fastapi import Body, FastAPI
    from fastapi.responses import Response, StreamingResponse

    app = FastAPI()

    def stream(plan):
        for piece in plan.pieces:
            time.sleep(TOKEN_INTERVAL_S)
            yield piece

    def answer(path, body):
        plan = Plan("POST", path, json.dumps(body))
        if plan.streaming:
            return StreamingResponse(stream(plan), media_type=plan.content_type)
        return Response(plan.pieces[0], plan.status, media_type=plan.content_type)

    @app.post("/v1/chat/completions")
    def chat(body: dict = Body()):
        return answer("/v1/chat/completions", body)

    @app.post("/v1/completions")
    def completions(body: dict = Body()):
        return answer("/v1/completions", body)

    return app


def main():
    kind, loop, http = sys.argv[1:4]
    # uvicorn raises the signal again when it is done.
    signal.signal(signal.SIGTERM, lambda *_: None)
    if uds := os.environ.get("UDS"):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(uds)
        listener.listen(256)
        os.chmod(uds, 0o777)
    else:
        listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    config = uvicorn.Config(
        Stamped(raw if kind == "raw" else fastapi_app()),
        loop=loop,
        http=http,
        lifespan="off",
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=2,
        # A connection is to outlive the start of an agent, on a busy machine too.
        timeout_keep_alive=600,
        ssl_certfile=os.environ.get("TLS_CERT"),
        ssl_keyfile=os.environ.get("TLS_KEY"),
    )
    announce(0 if uds else listener.getsockname()[1])
    uvicorn.Server(config).run(sockets=[listener])


main()
