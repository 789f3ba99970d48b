"""The answers of other APIs than OpenAI's older ones, as their own client libraries read them. See `answer.py`.

`said` is what an answer says of itself: why it ended, and how many tokens it took and where it counts them.
"""

import json
import re

INPUT_TOKENS = 9


def said(reason=None, source=None, output=None, given=None, version=None):
    """`source` is where the counts stand; without `output` tokens, events are all that can be counted."""
    return {
        "finish_reason": reason,
        "tokens_source": source,
        "output_tokens": output,
        "input_tokens": given,
        "model_version": version,
    }


def sse(kind, **fields):
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


class Shape:
    """What most have in common."""

    # A stream when the request asks for one, or `True` or `False` whatever it asks for.
    STREAMS = None
    # Version of the model that the path names.
    named_version = None
    # Outcomes that it has no way to express.
    LACKS = ()

    def __init__(self, plan, asked):
        self.plan = plan

    @property
    def broke(self):
        return self.plan.outcome == "in_band_error"

    @property
    def events(self):
        """Where tokens are counted if the answer does not say."""
        return "chunks" if self.plan.streaming and self.plan.tokens else None


class Messages(Shape):
    """Anthropic: text, thinking and a tool's input in turn, one block each; pings between."""

    API = "anthropic.messages"

    def said(self):
        if self.broke:
            return said(None, self.events, None, INPUT_TOKENS)
        return said(self.reason, "usage", self.plan.tokens, INPUT_TOKENS)

    def message(self, content, reason, output):
        usage = {"input_tokens": INPUT_TOKENS, "output_tokens": output}
        fields = {"id": self.plan.name, "type": "message", "role": "assistant", "model": self.plan.model}
        return {**fields, "content": content, "stop_reason": reason, "stop_sequence": None, "usage": usage}

    @property
    def reason(self):
        return "refusal" if self.plan.outcome == "content_filter" else "end_turn"

    def whole(self):
        content = [{"type": "text", "text": "lorem " * self.plan.tokens}] if self.plan.tokens else []
        return json.dumps(self.message(content, self.reason, self.plan.tokens)).encode()

    def block(self, index):
        kinds = [
            ({"type": "thinking", "thinking": "", "signature": ""}, "thinking_delta", "thinking", "lorem "),
            ({"type": "text", "text": ""}, "text_delta", "text", "lorem "),
            ({"type": "tool_use", "id": "t", "name": "lorem", "input": {}}, "input_json_delta", "partial_json", '"lorem "'),
        ]
        return kinds[index % 3]

    def stream(self):
        yield sse("message_start", message=self.message([], None, 1))
        for index in range(self.plan.tokens):
            begin, kind, field, text = self.block(index)
            yield sse("content_block_start", index=index, content_block=begin)
            yield sse("ping")
            yield sse("content_block_delta", index=index, delta={"type": kind, field: text})
            yield sse("content_block_stop", index=index)
        if self.plan.outcome == "in_band_error":
            yield sse("error", error={"type": "overloaded_error", "message": "broke"})
            return
        delta = {"stop_reason": self.reason, "stop_sequence": None}
        yield sse("message_delta", delta=delta, usage={"output_tokens": self.plan.tokens})
        yield sse("message_stop")


class Responses(Shape):
    """OpenAI's responses: typed events."""

    API = "openai.responses"

    def __init__(self, plan, asked):
        self.plan, self.number = plan, 0

    def said(self):
        if self.status == "completed":
            return said("completed", "usage", self.plan.tokens, INPUT_TOKENS)
        return said("content_filter" if self.status == "incomplete" else "failed", self.events)

    def response(self, status, output):
        total = INPUT_TOKENS + self.plan.tokens
        usage = {"input_tokens": INPUT_TOKENS, "output_tokens": self.plan.tokens, "total_tokens": total}
        fields = {"id": self.plan.name, "object": "response", "created_at": 1700000000, "status": status}
        details = {"reason": "content_filter"} if status == "incomplete" else None
        fields |= {"model": self.plan.model, "output": output, "incomplete_details": details, "tools": []}
        error = {"code": "server_error", "message": "broke"} if status == "failed" else None
        return {**fields, "error": error, "usage": usage if status == "completed" else None}

    def item(self, status, text):
        content = [{"type": "output_text", "text": text, "annotations": []}] if text else []
        return {"id": "m", "type": "message", "role": "assistant", "status": status, "content": content}

    @property
    def status(self):
        return {"in_band_error": "failed", "content_filter": "incomplete"}.get(self.plan.outcome, "completed")

    def whole(self):
        text = "lorem " * self.plan.tokens
        return json.dumps(self.response(self.status, [self.item("completed", text)])).encode()

    def event(self, kind, **fields):
        self.number += 1
        return sse(kind, sequence_number=self.number, **fields)

    def stream(self):
        place = {"item_id": "m", "output_index": 0, "content_index": 0}
        yield self.event("response.created", response=self.response("in_progress", []))
        yield self.event("response.output_item.added", output_index=0, item=self.item("in_progress", ""))
        for _ in range(self.plan.tokens):
            yield self.event("response.output_text.delta", **place, delta="lorem ", logprobs=[])
        end = {"completed": "completed", "failed": "failed", "incomplete": "incomplete"}[self.status]
        yield self.event(f"response.{end}", response=self.response(self.status, []))


class Ollama(Shape):
    """Lines of JSON; a stream unless the request says no."""

    LACKS = ("content_filter",)

    def __init__(self, plan, asked):
        self.plan, self.chat = plan, "messages" in asked

    @property
    def API(self):
        return "ollama.chat" if self.chat else "ollama.generate"

    def said(self):
        if self.broke:
            return said(None, self.events)
        return said("stop", "ollama", self.plan.tokens, INPUT_TOKENS)

    def text(self, text, thinking=False):
        if not self.chat:
            return {"response": text}
        message = {"role": "assistant", "content": "" if thinking else text}
        return {"message": {**message, "thinking": text} if thinking else message}

    def line(self, text, **fields):
        common = {"model": self.plan.model, "created_at": "2026-01-01T00:00:00.0Z"}
        return {**common, **text, **fields}

    def end(self, text):
        counts = {"total_duration": 5, "prompt_eval_count": INPUT_TOKENS, "eval_count": self.plan.tokens}
        return self.line(self.text(text), done=True, done_reason="stop", **counts)

    def whole(self):
        return json.dumps(self.end("lorem " * self.plan.tokens)).encode()

    def stream(self):
        for number in range(self.plan.tokens):
            yield json.dumps(self.line(self.text("lorem ", number % 3 == 1), done=False)).encode() + b"\n"
        last = {"error": "broke"} if self.plan.outcome == "in_band_error" else self.end("")
        yield json.dumps(last).encode() + b"\n"


def data(**fields):
    return f"data: {json.dumps(fields)}\n\n".encode()


class Embeddings(Shape):
    """Vectors; nothing is generated."""

    API, STREAMS, LACKS = "openai.embeddings", False, ("empty_output", "content_filter")

    def said(self):
        return said(None, "usage", None, INPUT_TOKENS)

    def whole(self):
        vectors = [{"object": "embedding", "index": 0, "embedding": [0.5] * 300}]
        usage = {"prompt_tokens": INPUT_TOKENS, "total_tokens": INPUT_TOKENS}
        return json.dumps({"object": "list", "data": vectors, "model": self.plan.model, "usage": usage}).encode()


class KServe(Shape):
    """The v2 protocol over HTTP: inference, and Triton's generation. The path says the model, maybe its version."""

    LACKS = ("empty_output", "content_filter")

    def __init__(self, plan, asked):
        self.plan, self.kind = plan, plan.path.rsplit("/", 1)[1]
        self.STREAMS = self.kind == "generate_stream"
        plan.model = re.search("/models/([^/]+)", plan.path)[1]
        versions = re.search("/versions/([^/]+)", plan.path)
        self.named_version = versions and versions[1]
        self.version = self.named_version or "1"

    @property
    def API(self):
        return f"kserve.{self.kind}"

    def said(self):
        return said(None, self.events, version=self.version)

    def answer(self, **fields):
        return {"model_name": self.plan.model, "model_version": self.version, **fields}

    def whole(self):
        text = "lorem " * self.plan.tokens
        if self.kind == "infer":
            output = {"name": "text", "datatype": "BYTES", "shape": [1], "data": [text]}
            return json.dumps(self.answer(id="i", outputs=[output])).encode()
        return json.dumps(self.answer(text_output=text)).encode()

    def stream(self):
        for _ in range(self.plan.tokens):
            yield data(**self.answer(sequence_end=False, text_output="lorem "))
        if self.broke:
            yield data(error="broke")


class Tgi(Shape):
    """A token an event; the last one has the whole text and the counts."""

    LACKS = ("content_filter",)

    def __init__(self, plan, asked):
        self.plan = plan
        if plan.path.endswith("_stream"):
            self.API, self.STREAMS = "tgi.generate_stream", True
        else:
            self.API = "tgi.generate"

    @property
    def details(self):
        return {"finish_reason": "eos_token", "generated_tokens": self.plan.tokens, "input_length": INPUT_TOKENS}

    def said(self):
        if self.broke:
            return said(None, self.events)
        return said("eos_token", "details", self.plan.tokens, INPUT_TOKENS)

    def whole(self):
        return json.dumps({"generated_text": "lorem " * self.plan.tokens, "details": self.details}).encode()

    def event(self, number, text, special, whole=None, details=None):
        token = {"id": number, "text": text, "logprob": -0.5, "special": special}
        fields = {"index": number, "token": token, "generated_text": whole, "details": details}
        return b"data:" + data(**fields).removeprefix(b"data: ")

    def stream(self):
        for number in range(self.plan.tokens):
            yield self.event(number, "lorem ", False)
            yield b":\n\n"
        if self.broke:
            yield b'data:{"error":"broke","error_type":"generation"}\n\n'
        else:
            # The text is not written again: it would be content to whoever looks for that word.
            whole = "LOREM " * self.plan.tokens
            yield self.event(self.plan.tokens, "</s>", True, whole, self.details)


class Sglang(Shape):
    """Each event has the whole text so far, and the first has none."""

    API, LACKS = "sglang.generate", ("content_filter",)

    def __init__(self, plan, asked):
        self.plan, self.words = plan, asked.get("words", 1)

    def said(self):
        reason = "abort" if self.broke else "stop"
        if self.plan.streaming and not self.plan.tokens:
            return said(reason, "meta_info", 0, INPUT_TOKENS)
        return said(reason, "meta_info", self.plan.tokens, INPUT_TOKENS)

    def answer(self, tokens, reason=None):
        meta = {"id": "s", "finish_reason": reason, "prompt_tokens": INPUT_TOKENS, "completion_tokens": tokens}
        return {"text": "lorem " * self.words * tokens, "meta_info": meta, "index": 0}

    def whole(self):
        return json.dumps(self.answer(self.plan.tokens, {"type": "stop", "matched": 2})).encode()

    def stream(self):
        for tokens in range(self.plan.tokens + 1):
            yield data(**self.answer(tokens))
        end = {"type": "stop", "matched": 2}
        if self.broke:
            end = {"type": "abort", "message": "broke", "status_code": 503, "err_type": "x"}
        last = data(**self.answer(self.plan.tokens, end))
        # Nothing new, so nothing that counts.
        yield last.replace(b"lorem", b"LOREM")
        yield b"data: [DONE]\n\n"


class LlamaCpp(Shape):
    """llama.cpp's own API, whose last event has the counts."""

    API, LACKS = "llamacpp.completion", ("content_filter",)

    def __init__(self, plan, asked):
        self.plan, plan.model = plan, None

    def said(self):
        if self.broke:
            return said(None, "timings", self.plan.tokens, INPUT_TOKENS)
        return said("eos", "timings", self.plan.tokens, INPUT_TOKENS)

    def part(self, text, number):
        counts = {"tokens_predicted": number, "tokens_evaluated": INPUT_TOKENS}
        return {"index": 0, "content": text, "tokens": [1], "stop": False, "id_slot": 0, **counts}

    def end(self, text):
        # Only here an answer says whose it is.
        self.plan.model = "llama-model"
        timings = {"prompt_n": INPUT_TOKENS, "predicted_n": self.plan.tokens}
        fields = {"stop": True, "model": self.plan.model, "stop_type": "eos", "stopping_word": "", "timings": timings}
        return {**self.part(text, self.plan.tokens), **fields}

    def whole(self):
        return json.dumps(self.end("lorem " * self.plan.tokens)).encode()

    def stream(self):
        for number in range(self.plan.tokens):
            yield data(**self.part("lorem ", number + 1))
        if self.broke:
            yield data(error={"code": 500, "message": "broke", "type": "server_error"})
        else:
            yield data(**self.end(""))


class TorchServe(Shape):
    """No JSON: what is known is in the path."""

    API, STREAMS, LACKS = "torchserve.predict", False, ("empty_output", "content_filter")

    def __init__(self, plan, asked):
        self.plan = plan
        _, _, plan.model, *version = plan.path.split("/")
        self.named_version = version[0] if version else None

    def said(self):
        return said(version=self.named_version)

    def whole(self):
        return b"lorem " * 20


class Unknown(Shape):
    """A server that nobody knows: JSON, and events of which nothing is understood."""

    API, LACKS = "http", ("empty_output", "content_filter", "in_band_error")

    def __init__(self, plan, asked):
        self.plan, plan.model = plan, None

    def said(self):
        return said()

    def whole(self):
        return json.dumps({"label": "ipsum", "score": 0.5, "boxes": [[1, 2, 3, 4]] * 40}).encode()

    def stream(self):
        for number in range(self.plan.tokens):
            yield b"data: ipsum %d\n\n" % number


SHAPES = [
    (r"/v1/messages", Messages, "text/event-stream"),
    (r"/v1/responses", Responses, "text/event-stream"),
    (r"/api/(chat|generate)", Ollama, "application/x-ndjson"),
    (r"/v1/embeddings", Embeddings, "text/event-stream"),
    (r"/v2/models/[^/]+(/versions/[^/]+)?/(infer|generate|generate_stream)", KServe, "text/event-stream"),
    (r"/generate_stream", Tgi, "text/event-stream"),
    (r"/generate", None, "text/event-stream"),
    (r"/completion", LlamaCpp, "text/event-stream"),
    (r"/predictions/.+", TorchServe, "text/event-stream"),
    (r"/detect", Unknown, "text/event-stream"),
]


def shape_of(path, asked):
    """The class of an API, if it is one of these, and the type of its streams."""
    for pattern, shape, events in SHAPES:
        if re.fullmatch(pattern, path):
            # Two engines have this path.
            return shape or (Tgi if "inputs" in asked else Sglang), events
    return None, "text/event-stream"
