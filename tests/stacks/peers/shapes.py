"""The answers of other APIs than OpenAI's older ones, as their own client libraries read them. See `answer.py`."""

import json


def sse(kind, **fields):
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


class Messages:
    """Anthropic: text, thinking and a tool's input in turn, one block each; pings between."""

    def __init__(self, plan, asked):
        self.plan = plan

    def message(self, content, reason, output):
        usage = {"input_tokens": 9, "output_tokens": output}
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


class Responses:
    """OpenAI's responses: typed events."""

    def __init__(self, plan, asked):
        self.plan, self.number = plan, 0

    def response(self, status, output):
        usage = {"input_tokens": 9, "output_tokens": self.plan.tokens, "total_tokens": 9 + self.plan.tokens}
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


class Ollama:
    """Lines of JSON; a stream unless the request says no."""

    def __init__(self, plan, asked):
        self.plan, self.chat = plan, "messages" in asked

    def text(self, text, thinking=False):
        if not self.chat:
            return {"response": text}
        message = {"role": "assistant", "content": "" if thinking else text}
        return {"message": {**message, "thinking": text} if thinking else message}

    def line(self, text, **fields):
        common = {"model": self.plan.model, "created_at": "2026-01-01T00:00:00.0Z"}
        return {**common, **text, **fields}

    def end(self, text):
        counts = {"total_duration": 5, "prompt_eval_count": 9, "eval_count": self.plan.tokens}
        return self.line(self.text(text), done=True, done_reason="stop", **counts)

    def whole(self):
        return json.dumps(self.end("lorem " * self.plan.tokens)).encode()

    def stream(self):
        for number in range(self.plan.tokens):
            yield json.dumps(self.line(self.text("lorem ", number % 3 == 1), done=False)).encode() + b"\n"
        last = {"error": "broke"} if self.plan.outcome == "in_band_error" else self.end("")
        yield json.dumps(last).encode() + b"\n"


class Generate:
    """SGLang: each event repeats the text so far, and lists its tokens."""

    def __init__(self, plan, asked):
        self.plan = plan

    def event(self, tokens, reason=None):
        text = "lorem ipsum dolor " * (8 * tokens)
        counts = {"id": self.plan.name, "prompt_tokens": 9, "completion_tokens": tokens, "finish_reason": reason}
        return {"text": text, "output_ids": list(range(tokens)), "meta_info": counts}

    def whole(self):
        return json.dumps(self.event(self.plan.tokens, {"type": "stop"})).encode()

    def stream(self):
        for tokens in range(1, self.plan.tokens + 1):
            reason = {"type": "stop"} if tokens == self.plan.tokens else None
            yield b"data: " + json.dumps(self.event(tokens, reason)).encode() + b"\n\n"
        yield b"data: [DONE]\n\n"


SHAPES = {
    "/generate": (Generate, "text/event-stream"),
    "/v1/messages": (Messages, "text/event-stream"),
    "/v1/responses": (Responses, "text/event-stream"),
    "/api/chat": (Ollama, "application/x-ndjson"),
    "/api/generate": (Ollama, "application/x-ndjson"),
}
