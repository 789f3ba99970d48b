//! The common APIs.

use expect_test::expect;

use super::{Case, JSON, SSE, case, check};

const CHAT_REQUEST: &str =
    r#"{"messages":[{"role":"user","content":"Geheim"}],"model":"m-1","max_tokens":9,"stream":true}"#;
const OPENAI_CHAT_AND_COMPLETIONS: &[Case] = &[
    case(
        "chat",
        "/v1/chat/completions",
        CHAT_REQUEST,
        SSE,
        &[
            "data: {\"object\":\"chat.completion.chunk\",\"model\":\"m-1\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n",
            ": keep-alive\n\n",
            "data: {\"model\":\"m-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Geheim\"},\"finish_reason\":null}]}\n\n",
            "data: {\"model\":\"m-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"kabel\"},\"finish_reason\":\"length\"}]}\n\n",
            "data: {\"model\":\"m-1\",\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2,\"total_tokens\":9}}\n\ndata: [DONE]\n\n",
        ],
    ),
    case(
        "reasoning and tools",
        "/v1/chat/completions",
        CHAT_REQUEST,
        SSE,
        &[
            "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"Geheim\"}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"kabel\",\"arguments\":\"\"}}]}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n",
        ],
    ),
    case(
        "two choices",
        "/v1/chat/completions",
        CHAT_REQUEST,
        SSE,
        &[
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Geheim\"}}]}\n\n",
            "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"kabel\"}}]}\n\ndata: [DONE]\n\n",
        ],
    ),
    case(
        "two choices, each with its count, and no end",
        "/v1/chat/completions",
        CHAT_REQUEST,
        SSE,
        &[
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Geheim\"}}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1}}\n\n",
            "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"kabel\"}}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1}}\n\n",
        ],
    ),
    case(
        "two choices, each with its count",
        "/v1/chat/completions",
        CHAT_REQUEST,
        SSE,
        &[
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Geheim\"}}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1}}\n\n",
            "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"kabel\"}}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1}}\n\n",
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n",
        ],
    ),
    case(
        "sound",
        "/v1/chat/completions",
        CHAT_REQUEST,
        SSE,
        &[
            "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"audio\":{\"id\":\"a\"}}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"audio\":{\"transcript\":\"Geheim\"}}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"audio\":{\"data\":\"kabel\"}}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"audio\":{\"expires_at\":17}},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
        ],
    ),
    case(
        "sound, whole",
        "/v1/chat/completions",
        r#"{"model":"m-1","messages":"Geheim"}"#,
        JSON,
        &[
            r#"{"choices":[{"message":{"content":null,"audio":{"id":"a","data":"kabel"}},"finish_reason":"stop"}]}"#,
        ],
    ),
    case(
        "error in a stream",
        "/v1/chat/completions",
        CHAT_REQUEST,
        SSE,
        &[
            "data: {\"choices\":[{\"delta\":{\"content\":\"Geheim\"}}]}\n\n",
            "data: {\"error\":{\"message\":\"kabel\",\"type\":\"server_error\",\"code\":500}}\n\ndata: [DONE]\n\n",
        ],
    ),
    case(
        "no end",
        "/v1/chat/completions",
        CHAT_REQUEST,
        SSE,
        &["data: {\"choices\":[{\"delta\":{\"content\":\"Geheim\"}}]}\n\n"],
    ),
    case(
        "aborted",
        "/v1/completions",
        r#"{"prompt":"Geheim","model":"m-1","stream":true}"#,
        SSE,
        &[
            "data: {\"model\":\"m-1\",\"choices\":[{\"index\":0,\"text\":\"kabel\",\"finish_reason\":null}]}\n\n",
            "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"abort\"}]}\n\ndata: [DONE]\n\n",
        ],
    ),
    case(
        "timings",
        "/v1/completions",
        r#"{"prompt":"Geheim","stream":true}"#,
        SSE,
        &[
            "data: {\"model\":\"m-1\",\"choices\":[{\"text\":\"kabel\"}]}\n\n",
            "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"stop\"}],\"timings\":{\"cache_n\":2,\"prompt_n\":5,\"prompt_ms\":1.5,\"predicted_n\":1}}\n\ndata: [DONE]\n\n",
        ],
    ),
    case(
        "whole",
        "/v1/chat/completions",
        r#"{"model":"m-1","messages":"Geheim"}"#,
        JSON,
        &[
            r#"{"id":"c","model":"m-1:served","choices":[{"index":0,"message":{"role":"assistant","content":"kabel"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}"#,
        ],
    ),
    case(
        "filtered",
        "/v1/chat/completions",
        r#"{"model":"m-1","messages":"Geheim"}"#,
        JSON,
        &[r#"{"model":"m-1","choices":[{"message":{"content":null},"finish_reason":"content_filter"}]}"#],
    ),
    case(
        "empty",
        "/v1/chat/completions",
        r#"{"model":"m-1","messages":"Geheim"}"#,
        JSON,
        &[
            r#"{"model":"m-1","choices":[{"message":{"content":""},"finish_reason":"length"}],"usage":{"prompt_tokens":7,"completion_tokens":0}}"#,
        ],
    ),
];

#[test]
fn openai_chat_and_completions() {
    check(
        OPENAI_CHAT_AND_COMPLETIONS,
        &expect![[r"
            chat: openai.chat model m-1 stream Ok finish length content 2 tokens Some(7)/Some(2) of usage max 9 first 3
            reasoning and tools: openai.chat model m-1 stream Ok finish tool_calls content 2 max 9 first 1
            two choices: openai.chat model m-1 stream Ok finish - content 2 max 9 interleaved first 1
            two choices, each with its count, and no end: openai.chat model m-1 stream Truncated finish - content 2 tokens Some(7)/None of usage max 9 interleaved first 1
            two choices, each with its count: openai.chat model m-1 stream Ok finish - content 2 tokens Some(7)/Some(2) of usage max 9 interleaved first 1
            sound: openai.chat model m-1 stream Ok finish stop content 2 max 9 first 2
            sound, whole: openai.chat model m-1 whole Ok finish stop content 0 first -
            error in a stream: openai.chat model m-1 stream InBandError finish - content 1 max 9 first 1
            no end: openai.chat model m-1 stream Truncated finish - content 1 max 9 first 1
            aborted: openai.completions model m-1 stream Truncated finish abort content 1 first 1
            timings: openai.completions model m-1 stream Ok finish stop content 1 tokens Some(7)/Some(1) of timings first 1
            whole: openai.chat model m-1:served whole Ok finish stop content 0 tokens Some(7)/Some(2) of usage first -
            filtered: openai.chat model m-1 whole ContentFilter finish content_filter content 0 first -
            empty: openai.chat model m-1 whole EmptyOutput finish length content 0 tokens Some(7)/Some(0) of usage first -
        "]],
    );
}

const REQUEST: &str = r#"{"input":"Geheim","model":"m-1","max_output_tokens":64,"stream":true}"#;
const OPENAI_RESPONSES: &[Case] = &[
    case(
        "text",
        "/v1/responses",
        REQUEST,
        SSE,
        &[
            "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"r\",\"object\":\"response\",\"status\":\"in_progress\",\"error\":null,\"incomplete_details\":null,\"model\":\"m-1\",\"output\":[],\"usage\":null}}\n\n",
            "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{\"type\":\"message\",\"status\":\"in_progress\",\"content\":[]}}\n\n",
            "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"output_index\":0,\"delta\":\"Geheim\"}\n\n",
            "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"output_index\":0,\"delta\":\"kabel\"}\n\n",
            "event: response.output_text.done\ndata: {\"type\":\"response.output_text.done\",\"text\":\"Geheimkabel\"}\n\n",
            "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"object\":\"response\",\"status\":\"completed\",\"model\":\"m-1\",\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"Geheimkabel\"}]}],\"usage\":{\"input_tokens\":5,\"input_tokens_details\":{\"cached_tokens\":4},\"output_tokens\":2,\"total_tokens\":7}}}\n\n",
        ],
    ),
    case(
        "reasoning and a call",
        "/v1/responses",
        REQUEST,
        SSE,
        &[
            "data: {\"type\":\"response.reasoning_text.delta\",\"delta\":\"Geheim\"}\n\n",
            "data: {\"type\":\"response.function_call_arguments.delta\",\"delta\":\"{\\\"kabel\"}\n\n",
            "data: {\"type\":\"response.incomplete\",\"response\":{\"status\":\"incomplete\",\"incomplete_details\":{\"reason\":\"max_output_tokens\"},\"output\":[]}}\n\n",
        ],
    ),
    case(
        "failed",
        "/v1/responses",
        REQUEST,
        SSE,
        &[
            "data: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_error\",\"message\":\"Geheim\"}}}\n\n",
        ],
    ),
    case(
        "cut short",
        "/v1/responses",
        REQUEST,
        SSE,
        &["data: {\"type\":\"response.output_text.delta\",\"delta\":\"Geheim\"}\n\n"],
    ),
    case(
        "whole",
        "/v1/responses",
        r#"{"input":"Geheim","model":"m-1"}"#,
        JSON,
        &[
            r#"{"object":"response","status":"completed","error":null,"model":"m-1","output":[{"type":"message","content":[{"type":"output_text","text":"kabel"}]}],"usage":{"input_tokens":5,"output_tokens":2}}"#,
        ],
    ),
];

#[test]
fn openai_responses() {
    check(
        OPENAI_RESPONSES,
        &expect![[r"
            text: openai.responses model m-1 stream Ok finish completed content 2 tokens Some(5)/Some(2) of usage max 64 first 3
            reasoning and a call: openai.responses model m-1 stream Ok finish max_output_tokens content 2 max 64 first 1
            failed: openai.responses model m-1 stream InBandError finish failed content 0 max 64 first -
            cut short: openai.responses model m-1 stream Truncated finish - content 1 max 64 first 1
            whole: openai.responses model m-1 whole Ok finish completed content 0 tokens Some(5)/Some(2) of usage first -
        "]],
    );
}
