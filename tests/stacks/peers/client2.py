"""HTTP/2 clients, each with one connection: `client2.py httpx|infer|stream PORT FIRST COUNT AT_ONCE [GATE]`.

Prints for each request what the client saw: its id, its status but for gRPC, and when it sent, had the first token, and
had the last byte. With TLS_CERT, over TLS; nobody checks whose certificate it is.

With a gate, the answers stop in the middle until that file is there; without one before, `AT_ONCE` are under way.
"""

import asyncio
import json
import os
import sys

import grpc
import httpx

from answer import now

# How a request ends depends on this: see answer.py and grpcd.py.
LENGTHS = [8, 5, 12, 3, 9, 6, 16, 4, 7, 10]


def seen(request_id, sent, first, last, status=None):
    line = {"request_id": request_id, "status": status}
    line |= {"t_send": sent, "t_first_token": first, "t_last_byte": last}
    print(json.dumps(line), flush=True)


class Httpx:
    """Server-sent events and whole answers."""

    def __init__(self, port, gate):
        limits = httpx.Limits(max_connections=1)
        self.client = httpx.AsyncClient(http1=False, http2=True, limits=limits, timeout=30, verify=False)
        scheme = "https" if "TLS_CERT" in os.environ else "http"
        self.base, self.gate = f"{scheme}://127.0.0.1:{port}", gate

    async def ask(self, number):
        request_id, tokens = f"h2-{number:06}", LENGTHS[number % len(LENGTHS)]
        body = {
            "model": "h2-model",
            "messages": [{"role": "user", "content": "hello " * (1 + number * 37 % 400)}],
            "max_tokens": 8 if self.gate else tokens,
            "stream": bool(self.gate) or number % 3 != 2,
        }
        headers = {"x-request-id": request_id, "authorization": f"Bearer {number}"}
        if self.gate:
            headers["x-gate"] = self.gate
        url, sent, first = f"{self.base}/v1/chat/completions?n={number}", now(), None
        async with self.client.stream("POST", url, json=body, headers=headers) as answer:
            assert answer.http_version == "HTTP/2", answer.http_version
            async for data in answer.aiter_raw():
                if first is None and b"lorem" in data and body["stream"]:
                    first = now()
        seen(request_id, sent, first, now(), answer.status_code)


class Grpc:
    """KServe calls."""

    def __init__(self, port, gate, streaming):
        sys.path.insert(0, os.path.dirname(__file__))
        self.protos, services = grpc.protos_and_services("kserve.proto")
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        self.stub = services.GRPCInferenceServiceStub(self.channel)
        self.gate, self.streaming = gate, streaming

    async def ask(self, number):
        request_id = f"g{'s' if self.streaming else 'u'}-{number:06}"
        request = self.protos.ModelInferRequest(model_name="grpc-model", id=request_id)
        request.parameters["max_tokens"].int64_param = 8 if self.gate else LENGTHS[number % len(LENGTHS)]
        if self.gate:
            request.parameters["gate"].string_param = self.gate
        request.raw_input_contents.append(b"hello " * (1 + number * 37 % 400))
        metadata, sent, first = (("x-request-id", request_id),), now(), None
        try:
            if self.streaming:
                call = self.stub.ModelStreamInfer(iter([request]), metadata=metadata)
                async for _ in call:
                    first = first or now()
            else:
                await self.stub.ModelInfer(request, metadata=metadata)
        except grpc.aio.AioRpcError:
            pass
        seen(request_id, sent, first, now())


async def main():
    kind, port, first, count, at_once = sys.argv[1], *map(int, sys.argv[2:6])
    gate = sys.argv[6] if len(sys.argv) > 6 else None
    client = Httpx(port, gate) if kind == "httpx" else Grpc(port, gate, kind == "stream")
    turn = asyncio.Semaphore(at_once)

    async def one(number):
        async with turn:
            await client.ask(number)

    await asyncio.gather(*(one(number) for number in range(first, first + count)))
    if gate:
        # On the same connection, with what its table holds by then.
        client.gate = None
        await asyncio.gather(*(one(number) for number in range(first + count, first + 2 * count)))


asyncio.run(main())
