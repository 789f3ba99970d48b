"""What the peers answer, and the file in which they say when they did.

A request decides by its `max_tokens` how it ends, so that every peer meets every outcome that is the application's.
"""

import json
import os
import time

from shapes import INPUT_TOKENS, said, shape_of

TOKEN_INTERVAL_S = 0.002
# Content events carry this word and nothing else does.
MARK = b"lorem"

now = time.monotonic_ns


def limit(asked):
    """How many tokens a request asks for at most, wherever its API puts that."""
    places = [asked, *(asked.get(key) or {} for key in ("options", "parameters", "sampling_params"))]
    keys = ["max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "num_predict", "n_predict"]
    return next((place[key] for place in places for key in keys if place.get(key)), 8)


class Plan:
    """The answer to one request: the status, and the body in the pieces in which it is written."""

    def __init__(self, method, path, body, name="cmpl-1"):
        self.name = name
        try:
            asked = json.loads(body) if body else {}
        except ValueError:
            asked = {}
        self.method, self.path, self.model = method, path.split("?")[0], asked.get("model")
        shape, self.events_type = shape_of(self.path, asked)
        self.shape = shape and shape(self, asked)
        self.streaming = bool(asked.get("stream", self.path.startswith("/api/")))
        if shape and self.shape.STREAMS is not None:
            self.streaming = self.shape.STREAMS
        self.tokens = limit(asked)
        self.chat = "messages" in asked or not path.endswith("/completions")
        self.status, self.outcome, self.reason = 200, "ok", "stop"
        self.usage = bool((asked.get("stream_options") or {}).get("include_usage"))
        self.choose()
        if self.shape and self.status == 200:
            self.pieces = list(self.shape.stream()) if self.streaming else [self.shape.whole()]
        else:
            self.pieces = self.stream() if self.streaming else [self.whole()]

    def choose(self):
        lacks = self.shape.LACKS if self.shape else ()
        if self.tokens == 3:
            self.status, self.outcome, self.streaming = 400, "client_4xx", False
        elif self.tokens == 4:
            self.status, self.outcome, self.streaming = 500, "server_5xx", False
        elif self.tokens == 5 and self.streaming and "in_band_error" not in lacks:
            self.outcome = "in_band_error"
        elif self.tokens == 6 and "content_filter" not in lacks:
            self.outcome, self.reason = "content_filter", "content_filter"
        elif self.tokens == 7 and "empty_output" not in lacks:
            self.outcome, self.tokens = "empty_output", 0

    @property
    def api(self):
        """As the records name it; `None` where these peers only play."""
        if self.shape:
            return self.shape.API
        ends = {"/chat/completions": "openai.chat", "/completions": "openai.completions"}
        return next((api for end, api in ends.items() if self.path.endswith(end)), None)

    @property
    def said(self):
        """What the answer says of itself."""
        if self.status >= 400:
            return said(version=self.shape and self.shape.named_version)
        if self.shape:
            return self.shape.said()
        events = "chunks" if self.streaming and self.tokens else None
        if self.outcome == "in_band_error":
            return said(None, events)
        if self.streaming and not self.usage:
            return said(self.reason, events)
        return said(self.reason, "usage", self.tokens, INPUT_TOKENS)

    @property
    def content_type(self):
        return self.events_type if self.streaming else "application/json"

    def choice(self, key, text, reason=None):
        if self.chat:
            return {"index": 0, key: {"role": "assistant", "content": text}, "finish_reason": reason}
        return {"index": 0, "text": text, "finish_reason": reason}

    def object(self, kind, **fields):
        common = {"id": self.name, "object": kind, "created": 1700000000, "model": self.model}
        return {**common, **fields}

    def counts(self):
        total = INPUT_TOKENS + self.tokens
        return {"prompt_tokens": INPUT_TOKENS, "completion_tokens": self.tokens, "total_tokens": total}

    def whole(self):
        if self.status >= 400:
            return json.dumps({"error": {"message": self.name, "type": "t", "code": self.status}}).encode()
        text = "lorem " * self.tokens
        choices = [self.choice("message", text, self.reason)]
        return json.dumps(self.object("chat.completion", choices=choices, usage=self.counts())).encode()

    def event(self, **fields):
        return b"data: " + json.dumps(self.object("chat.completion.chunk", **fields)).encode() + b"\n\n"

    def stream(self):
        pieces = [self.event(choices=[self.choice("delta", "")])]
        pieces += [self.event(choices=[self.choice("delta", "lorem ")]) for _ in range(self.tokens)]
        if self.outcome == "in_band_error":
            pieces.append(b'data: {"error": {"message": "broke", "type": "t", "code": 500}}\n\n')
        else:
            pieces.append(self.event(choices=[self.choice("delta", "", self.reason)]))
            if self.usage:
                pieces.append(self.event(choices=[], usage=self.counts()))
        return [*pieces, b"data: [DONE]\n\n"]


class Writes:
    """When the writes of one answer were: the clock before and after each."""

    def __init__(self):
        self.content, self.last, self.first_read = [], None, None

    def wrote(self, body, before, after):
        if MARK in body:
            self.content.append([before, after])
        self.last = [before, after]


def truth(request_id, plan, writes):
    """One line of the truth."""
    first = writes.content[0] if plan.streaming and writes.content else None
    line = {
        "request_id": request_id,
        "method": plan.method,
        "path": plan.path,
        "model": plan.model,
        "status": plan.status,
        "outcome": plan.outcome,
        "streaming": plan.streaming,
        "t_first_token_write_ns": first,
        "t_last_write_ns": writes.last,
        "content_write_ns": writes.content if plan.streaming else [],
        "said": {"api": plan.api, **plan.said} if plan.api else None,
    }
    with open(os.environ["TRUTH"], "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


async def gate(path):
    """Waits until a file is there."""
    # It brings OpenSSL along, which not every peer wants.
    import asyncio

    while not os.path.exists(path):
        await asyncio.sleep(0.002)


def announce(port):
    """Says where the peer listens, once it does."""
    path = os.environ["PORT_FILE"]
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(str(port))
    os.rename(path + ".new", path)
