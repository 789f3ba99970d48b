"""Clients as applications use them: `client.py openai|httpx|requests PORT COUNT`.

Prints a line per request: its id. What was true of it is the server's to say.
"""

import asyncio
import sys

MODEL = "client-model"
# How a request ends depends on this: see answer.py.
LENGTHS = [8, 5, 12, 3, 9, 6, 16, 4, 7, 10]


def body(number):
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": "hello " * (1 + number * 37 % 400)}],
        "max_tokens": LENGTHS[number % len(LENGTHS)],
        "stream": number % 2 == 0,
    }


def with_openai(base, count):
    import openai

    client = openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="sk-none", max_retries=0)

    async def one(number, turn):
        async with turn:
            headers = {"x-request-id": f"openai-{number}"}
            try:
                answer = await client.chat.completions.create(**body(number), extra_headers=headers)
                if number % 2 == 0:
                    async for _ in answer:
                        pass
            except openai.APIError:
                pass

    async def run():
        turn = asyncio.Semaphore(8)
        await asyncio.gather(*(one(number, turn) for number in range(count)))

    asyncio.run(run())


def with_httpx(base, count):
    import httpx

    with httpx.Client() as client:
        for number in range(count):
            headers = {"x-request-id": f"httpx-{number}"}
            url = f"{base}/v1/chat/completions?n={number}"
            with client.stream("POST", url, json=body(number), headers=headers) as answer:
                for _ in answer.iter_lines():
                    pass


def with_requests(base, count):
    import requests

    session = requests.Session()
    for number in range(count):
        headers = {"x-request-id": f"requests-{number}"}
        # A generator is sent in chunks.
        data = (piece for piece in [__import__("json").dumps(body(number)).encode()])
        headers["content-type"] = "application/json"
        session.post(f"{base}/v1/chat/completions", data=data, headers=headers, stream=True).content


kind, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
globals()[f"with_{kind}"](f"http://127.0.0.1:{port}", count)
