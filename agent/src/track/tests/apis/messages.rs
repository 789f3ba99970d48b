//! Messages with typed blocks, and lines of JSON.

use expect_test::expect;

use super::{Case, JSON, NDJSON, SSE, case, check};

const REQUEST: &str =
    r#"{"model":"m-1","max_tokens":64,"messages":[{"role":"user","content":"Geheim"}],"stream":true}"#;
const ANTHROPIC_MESSAGES: &[Case] = &[
    case(
        "text",
        "/v1/messages",
        REQUEST,
        SSE,
        &[
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"a\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m-1\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":5,\"cache_read_input_tokens\":20,\"output_tokens\":1}}}\n\n",
            "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
            "event: ping\ndata: {\"type\":\"ping\"}\n\n",
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Geheim\"}}\n\n",
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"kabel\"}}\n\n",
            "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
            "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":12}}\n\n",
            "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        ],
    ),
    case(
        "thinking and a tool",
        "/v1/messages",
        REQUEST,
        SSE,
        &[
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"Geheim\"}}\n\n",
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"kabel\"}}\n\n",
            "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"name\":\"kabel\",\"input\":{}}}\n\n",
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"\"}}\n\n",
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"kabel\"}}\n\n",
            "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":3}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        ],
    ),
    case(
        "error",
        "/v1/messages",
        REQUEST,
        SSE,
        &[
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"Geheim\"}}\n\n",
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"kabel\"}}\n\n",
        ],
    ),
    case(
        "cut short",
        "/v1/messages",
        REQUEST,
        SSE,
        &[
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m-1\",\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}\n\n",
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"Geheim\"}}\n\n",
        ],
    ),
    case(
        "a tool without arguments",
        "/v1/messages",
        r#"{"model":"m-1","max_tokens":64,"stream":true,"messages":"Geheim"}"#,
        SSE,
        &[
            "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"kabel\",\"input\":{}}}\n\n",
            "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"\"}}\n\n",
            "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":3}}\n\n",
            "data: {\"type\":\"message_stop\"}\n\n",
        ],
    ),
    case(
        "refusal",
        "/v1/messages",
        r#"{"model":"m-1","max_tokens":64,"messages":"Geheim"}"#,
        JSON,
        &[
            r#"{"type":"message","model":"m-1","content":[],"stop_reason":"refusal","usage":{"input_tokens":5,"output_tokens":0}}"#,
        ],
    ),
    case(
        "whole",
        "/v1/messages",
        r#"{"model":"m-1","max_tokens":64,"messages":"Geheim"}"#,
        JSON,
        &[
            r#"{"type":"message","model":"m-1","content":[{"type":"text","text":"kabel"}],"stop_reason":"max_tokens","usage":{"input_tokens":5,"output_tokens":64}}"#,
        ],
    ),
];

#[test]
fn anthropic_messages() {
    check(
        ANTHROPIC_MESSAGES,
        &expect![[r"
            text: anthropic.messages model m-1 stream Ok finish end_turn content 2 tokens Some(25)/Some(12) of usage max 64 first 4
            thinking and a tool: anthropic.messages model m-1 stream Ok finish tool_use content 3 tokens None/Some(3) of usage max 64 first 1
            error: anthropic.messages model m-1 stream InBandError finish - content 1 max 64 first 1
            cut short: anthropic.messages model m-1 stream Truncated finish - content 1 tokens Some(5)/None of usage max 64 first 2
            a tool without arguments: anthropic.messages model m-1 stream Ok finish tool_use content 1 tokens None/Some(3) of usage max 64 first 1
            refusal: anthropic.messages model m-1 whole ContentFilter finish refusal content 0 tokens Some(5)/Some(0) of usage max 64 first -
            whole: anthropic.messages model m-1 whole Ok finish max_tokens content 0 tokens Some(5)/Some(64) of usage max 64 first -
        "]],
    );
}

const CHAT_REQUEST: &str =
    r#"{"model":"m:8b","messages":[{"role":"user","content":"Geheim"}],"options":{"num_predict":32}}"#;
const OLLAMA: &[Case] = &[
    case(
        "chat",
        "/api/chat",
        CHAT_REQUEST,
        NDJSON,
        &[
            "{\"model\":\"m:8b\",\"created_at\":\"2026-01-01T00:00:00Z\",\"message\":{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"Geheim\"},\"done\":false}\n",
            "{\"model\":\"m:8b\",\"message\":{\"role\":\"assistant\",\"content\":\"kabel\"},\"done\":false}\n",
            "{\"model\":\"m:8b\",\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\",\"total_duration\":5,\"prompt_eval_count\":11,\"eval_count\":2}\n",
        ],
    ),
    case(
        "generate",
        "/api/generate",
        r#"{"model":"m:8b","prompt":"Geheim"}"#,
        NDJSON,
        &[
            "{\"model\":\"m:8b\",\"response\":\"Geheim\",\"done\":false}\n{\"model\":\"m:8b\",\"response\":\"kabel\",\"done\":false}\n",
            "{\"model\":\"m:8b\",\"response\":\"\",\"done\":true,\"done_reason\":\"length\",\"context\":[1,2,3],\"eval_count\":2}\n",
        ],
    ),
    case(
        "error",
        "/api/chat",
        CHAT_REQUEST,
        NDJSON,
        &[
            "{\"model\":\"m:8b\",\"message\":{\"content\":\"Geheim\"},\"done\":false}\n",
            "{\"error\":\"kabel\"}\n",
        ],
    ),
    case(
        "cut short",
        "/api/chat",
        CHAT_REQUEST,
        NDJSON,
        &["{\"model\":\"m:8b\",\"message\":{\"content\":\"Geheim\"},\"done\":false}\n"],
    ),
    case(
        "whole",
        "/api/generate",
        r#"{"model":"m:8b","prompt":"Geheim","stream":false}"#,
        JSON,
        &[
            r#"{"model":"m:8b","response":"kabel","done":true,"done_reason":"stop","prompt_eval_count":11,"eval_count":2}"#,
        ],
    ),
    case(
        "load",
        "/api/generate",
        r#"{"model":"m:8b","stream":false}"#,
        JSON,
        &[r#"{"model":"m:8b","response":"","done":true,"done_reason":"load"}"#],
    ),
    case(
        "embed",
        "/api/embed",
        r#"{"model":"m:8b","input":"Geheim"}"#,
        JSON,
        &[r#"{"model":"m:8b","embeddings":[[0.25,1.5]],"prompt_eval_count":4}"#],
    ),
];

#[test]
fn ollama() {
    check(
        OLLAMA,
        &expect![[r"
            chat: ollama.chat model m:8b stream Ok finish stop content 2 tokens Some(11)/Some(2) of ollama max 32 first 1
            generate: ollama.generate model m:8b stream Truncated finish length content 2 tokens None/Some(2) of ollama first 1
            error: ollama.chat model m:8b stream InBandError finish - content 1 max 32 first 1
            cut short: ollama.chat model m:8b stream Truncated finish - content 1 max 32 first 1
            whole: ollama.generate model m:8b whole Ok finish stop content 0 tokens Some(11)/Some(2) of ollama first -
            load: ollama.generate model m:8b whole Ok finish load content 0 first -
            embed: ollama.embed model m:8b whole Ok finish - content 0 tokens Some(4)/None of ollama first -
        "]],
    );
}
