"""Clients as applications use them: `client.py openai|responses|anthropic|ollama|httpx|requests|every|deadline PORT COUNT`.

Those that read answers check what they got, so that what the servers send is what such servers send.

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


def all_at_once(count, one, refusals):
    """Eight requests at a time. A request may be refused, or break off, as its length says."""

    async def guarded(number, turn):
        async with turn:
            try:
                got = await one(number)
            except refusals:
                got = None
            tokens = LENGTHS[number % len(LENGTHS)]
            expected = None if tokens in (3, 4) or (tokens == 5 and number % 2 == 0) else tokens
            assert tokens == 7 or got == expected, f"request {number}: {got} of {expected}"

    async def run():
        turn = asyncio.Semaphore(8)
        await asyncio.gather(*(guarded(number, turn) for number in range(count)))

    asyncio.run(run())


def with_responses(base, count):
    import openai

    client = openai.AsyncOpenAI(base_url=f"{base}/v1", api_key="sk-none", max_retries=0)

    async def one(number):
        asked, headers = body(number), {"x-request-id": f"responses-{number}"}
        answer = await client.responses.create(
            model=MODEL,
            input="hello",
            max_output_tokens=asked["max_tokens"],
            stream=asked["stream"],
            extra_headers=headers,
        )
        if not asked["stream"]:
            return answer.output_text.count("lorem")
        events = [event async for event in answer]
        if events[-1].type == "response.failed":
            return None
        return sum(event.delta.count("lorem") for event in events if event.type == "response.output_text.delta")

    all_at_once(count, one, openai.APIError)


def with_anthropic(base, count):
    import anthropic

    client = anthropic.AsyncAnthropic(base_url=base, api_key="none", max_retries=0)

    async def one(number):
        asked, headers = body(number), {"x-request-id": f"anthropic-{number}"}
        answer = await client.messages.create(**asked, extra_headers=headers)
        if not asked["stream"]:
            return sum(block.text.count("lorem") for block in answer.content)
        deltas = [event.delta async for event in answer if event.type == "content_block_delta"]
        fields = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
        return sum(getattr(delta, fields[delta.type]).count("lorem") for delta in deltas)

    all_at_once(count, one, anthropic.APIError)


def with_ollama(base, count):
    import ollama

    async def one(number):
        asked = body(number)
        client = ollama.AsyncClient(host=base, headers={"x-request-id": f"ollama-{number}"})
        options = {"model": MODEL, "stream": asked["stream"], "options": {"num_predict": asked["max_tokens"]}}
        if number % 4 < 2:
            answer = await client.chat(messages=[{"role": "user", "content": "hello"}], **options)
            parts = [part async for part in answer] if asked["stream"] else [answer]
            texts = [(part.message.content or "") + (part.message.thinking or "") for part in parts]
        else:
            answer = await client.generate(prompt="hello", **options)
            parts = [part async for part in answer] if asked["stream"] else [answer]
            texts = [part.response for part in parts]
        return sum(text.count("lorem") for text in texts)

    all_at_once(count, one, ollama.ResponseError)


def with_httpx(base, count):
    import httpx

    with httpx.Client() as client:
        for number in range(count):
            headers = {"x-request-id": f"httpx-{number}"}
            url = f"{base}/v1/chat/completions?n={number}"
            with client.stream("POST", url, json=body(number), headers=headers) as answer:
                for _ in answer.iter_lines():
                    pass


def with_deadline(base, count):
    """Gives up when nothing has come for 0.4 s, on a server that takes longer."""
    import httpx

    for number in range(count):
        headers = {"x-request-id": f"deadline-{number}", "x-slow": "2"}
        try:
            httpx.post(f"{base}/slow/v1/chat/completions", json=body(number), headers=headers, timeout=0.4)
        except httpx.ReadTimeout:
            continue
        raise AssertionError("the server answered in time")


def with_requests(base, count):
    import requests

    session = requests.Session()
    for number in range(count):
        headers = {"x-request-id": f"requests-{number}"}
        # A generator is sent in chunks.
        data = (piece for piece in [__import__("json").dumps(body(number)).encode()])
        headers["content-type"] = "application/json"
        session.post(f"{base}/v1/chat/completions", data=data, headers=headers, stream=True).content


def every_api(tokens, stream):
    """A request of each API, with its path."""
    prompt = "hello " * 40
    messages = [{"role": "user", "content": prompt}]
    usage = {"stream_options": {"include_usage": True}}
    common = {"model": MODEL, "stream": stream}
    return [
        ("/v1/chat/completions", {**common, "messages": messages, "max_tokens": tokens, **usage}),
        ("/v1/completions", {**common, "prompt": prompt, "max_tokens": tokens, **usage}),
        ("/v1/responses", {**common, "input": prompt, "max_output_tokens": tokens}),
        ("/v1/embeddings", {"model": MODEL, "input": prompt}),
        ("/v1/messages", {**common, "messages": messages, "max_tokens": tokens}),
        ("/api/chat", {**common, "messages": messages, "options": {"num_predict": tokens}}),
        # A stream without being asked for.
        ("/api/generate", {"model": MODEL, "prompt": prompt, "options": {"num_predict": tokens}}),
        ("/v2/models/net-a/infer", {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": [prompt]}]}),
        ("/v2/models/net-b/versions/3/infer", {"inputs": []}),
        ("/v2/models/net-c/generate", {"text_input": prompt, "max_tokens": tokens}),
        ("/v2/models/net-d/versions/7/generate_stream", {"text_input": prompt, "max_tokens": tokens}),
        ("/generate_stream", {"inputs": prompt, "parameters": {"max_new_tokens": tokens}}),
        ("/generate", {"inputs": prompt, "parameters": {"max_new_tokens": tokens, "details": True}, "stream": stream}),
        ("/generate", {"text": prompt, "sampling_params": {"max_new_tokens": tokens}, "stream": stream}),
        ("/completion", {"prompt": prompt, "n_predict": tokens, "stream": stream}),
        ("/predictions/net-e", {"data": prompt}),
        ("/predictions/net-f/2.0", {"data": prompt}),
        ("/detect", {"image": prompt, "stream": stream}),
    ]


def with_every(base, count):
    """Each of them in each of its ways."""
    import httpx

    asked = [request for number in range(count) for request in every_api(LENGTHS[number // 2], number % 2 == 0)]

    async def run():
        turn = asyncio.Semaphore(8)
        async with httpx.AsyncClient() as client:

            async def one(number, path, asked):
                async with turn:
                    await client.post(base + path, json=asked, headers={"x-request-id": f"every-{number}"})

            await asyncio.gather(*(one(number, *request) for number, request in enumerate(asked)))

    asyncio.run(run())


kind, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
globals()[f"with_{kind}"](f"http://127.0.0.1:{port}", count)
