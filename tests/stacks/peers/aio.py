"""An aiohttp peer; asyncio writes at once, so the stamps around `write` hold the call."""

import asyncio
import signal
import socket

from aiohttp import web

from answer import TOKEN_INTERVAL_S, Plan, Writes, announce, now, truth


async def stamped(writes, body, call):
    before = now()
    await call
    writes.wrote(body, before, now())


async def answer(request):
    plan, writes = Plan(request.method, request.path, await request.read()), Writes()
    headers = {"content-type": plan.content_type}
    if plan.streaming:
        response = web.StreamResponse(status=plan.status, headers=headers)
        await stamped(writes, b"", response.prepare(request))
        for piece in plan.pieces:
            await asyncio.sleep(TOKEN_INTERVAL_S)
            await stamped(writes, piece, response.write(piece))
        await stamped(writes, b"", response.write_eof())
    else:
        response = web.Response(status=plan.status, body=plan.pieces[0], headers=headers)

        async def whole():
            await response.prepare(request)
            await response.write_eof()

        await stamped(writes, plan.pieces[0], whole())
    truth(request.headers.get("x-request-id"), plan, writes)
    return response


async def main():
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    await web.SockSite(runner, listener, shutdown_timeout=2).start()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    announce(listener.getsockname()[1])
    await stop.wait()
    await runner.cleanup()


asyncio.run(main())
