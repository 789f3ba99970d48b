//! APIs of single engines.

use expect_test::expect;

use super::{Case, JSON, SSE, case, check};

const SGLANG_REQUEST: &str = r#"{"text":"Geheim","sampling_params":{"max_new_tokens":16},"stream":true}"#;
const TGI_REQUEST: &str = r#"{"inputs":"Geheim","parameters":{"max_new_tokens":16},"stream":true}"#;
const NATIVE_APIS_OF_ENGINES: &[Case] = &[
    case(
        "sglang",
        "/generate",
        SGLANG_REQUEST,
        SSE,
        &[
            "data: {\"text\":\"\",\"meta_info\":{\"prompt_tokens\":4,\"completion_tokens\":1,\"finish_reason\":null},\"index\":0}\n\n",
            "data: {\"text\":\"Geheim\",\"meta_info\":{\"prompt_tokens\":4,\"completion_tokens\":2,\"finish_reason\":null},\"index\":0}\n\n",
            "data: {\"text\":\"Geheim\",\"meta_info\":{\"prompt_tokens\":4,\"completion_tokens\":3,\"finish_reason\":null},\"index\":0}\n\n",
            "data: {\"text\":\"Geheim\\nkabel\",\"meta_info\":{\"prompt_tokens\":4,\"completion_tokens\":5,\"finish_reason\":{\"type\":\"length\",\"length\":5}},\"index\":0}\n\n",
            "data: [DONE]\n\n",
        ],
    ),
    case(
        "sglang, new text only",
        "/generate",
        SGLANG_REQUEST,
        SSE,
        &[
            "data: {\"text\":\"Geheim\",\"meta_info\":{\"completion_tokens\":2}}\n\ndata: {\"text\":\"kabel\",\"meta_info\":{\"completion_tokens\":3}}\n\n",
            "data: {\"text\":\"kabel\",\"meta_info\":{\"completion_tokens\":4,\"finish_reason\":{\"type\":\"stop\"}}}\n\ndata: [DONE]\n\n",
        ],
    ),
    case(
        "sglang, new text of equal lengths",
        "/generate",
        SGLANG_REQUEST,
        SSE,
        &[
            "data: {\"text\":\" kabel\",\"output_ids\":[7],\"meta_info\":{\"completion_tokens\":1}}\n\n",
            "data: {\"text\":\" kabel\",\"output_ids\":[8],\"meta_info\":{\"completion_tokens\":2}}\n\n",
            "data: {\"text\":\" kabel\",\"output_ids\":[9],\"meta_info\":{\"completion_tokens\":3,\"finish_reason\":{\"type\":\"stop\"}}}\n\ndata: [DONE]\n\n",
        ],
    ),
    case(
        "sglang, text so far of equal lengths",
        "/generate",
        SGLANG_REQUEST,
        SSE,
        &[
            "data: {\"text\":\" kabel\",\"output_ids\":[7],\"meta_info\":{\"completion_tokens\":1}}\n\n",
            "data: {\"text\":\" kabel\",\"output_ids\":[7,8],\"meta_info\":{\"completion_tokens\":2}}\n\n",
            "data: {\"text\":\" kabel Geheim\",\"output_ids\":[7,8,9],\"meta_info\":{\"completion_tokens\":3,\"finish_reason\":{\"type\":\"stop\"}}}\n\ndata: [DONE]\n\n",
        ],
    ),
    case(
        "sglang, fewer bytes than tokens",
        "/generate",
        SGLANG_REQUEST,
        SSE,
        &[
            "data: {\"text\":\"a\",\"meta_info\":{\"completion_tokens\":1}}\n\n",
            "data: {\"text\":\"b\",\"meta_info\":{\"completion_tokens\":2}}\n\ndata: {\"text\":\"c\",\"meta_info\":{\"completion_tokens\":4}}\n\n",
            "data: {\"text\":\"d\",\"meta_info\":{\"completion_tokens\":5}}\n\n",
            "data: {\"text\":\"e\",\"meta_info\":{\"completion_tokens\":6,\"finish_reason\":{\"type\":\"stop\"}}}\n\ndata: [DONE]\n\n",
        ],
    ),
    case(
        "sglang, tokens without text",
        "/generate",
        SGLANG_REQUEST,
        SSE,
        &[
            "data: {\"output_ids\":[7],\"meta_info\":{\"completion_tokens\":1}}\n\n",
            "data: {\"output_ids\":[7,8],\"meta_info\":{\"completion_tokens\":2,\"finish_reason\":{\"type\":\"stop\"}}}\n\ndata: [DONE]\n\n",
        ],
    ),
    case(
        "sglang, tokens without text, whole",
        "/generate",
        r#"{"input_ids":[1,2],"sampling_params":{}}"#,
        JSON,
        &[r#"{"output_ids":[1,2],"meta_info":{"completion_tokens":2,"finish_reason":{"type":"stop"}}}"#],
    ),
    case(
        "sglang, no tokens, whole",
        "/generate",
        r#"{"input_ids":[1,2],"sampling_params":{}}"#,
        JSON,
        &[r#"{"output_ids":[],"meta_info":{"completion_tokens":0,"finish_reason":{"type":"stop"}}}"#],
    ),
    case(
        "sglang, two",
        "/generate",
        SGLANG_REQUEST,
        SSE,
        &[
            "data: {\"text\":\"Geheim\",\"meta_info\":{\"completion_tokens\":2},\"index\":0}\n\n",
            "data: {\"text\":\"kabel\",\"meta_info\":{\"completion_tokens\":2},\"index\":1}\n\ndata: [DONE]\n\n",
        ],
    ),
    case(
        "sglang, aborted",
        "/generate",
        SGLANG_REQUEST,
        SSE,
        &[
            "data: {\"text\":\"Geheim\",\"meta_info\":{\"completion_tokens\":2,\"finish_reason\":{\"type\":\"abort\",\"message\":\"kabel\",\"status_code\":503,\"err_type\":\"x\"}}}\n\ndata: [DONE]\n\n",
        ],
    ),
    case(
        "sglang, whole",
        "/generate",
        r#"{"text":"Geheim","sampling_params":{}}"#,
        JSON,
        &[
            r#"{"text":"kabel","meta_info":{"id":"a","finish_reason":{"type":"stop","matched":2},"prompt_tokens":4,"completion_tokens":5}}"#,
        ],
    ),
    case(
        "tgi",
        "/generate_stream",
        r#"{"inputs":"Geheim"}"#,
        SSE,
        &[
            "data:{\"index\":1,\"token\":{\"id\":5,\"text\":\"Geheim\",\"logprob\":-0.5,\"special\":false},\"generated_text\":null,\"details\":null}\n\n",
            ":\n\n",
            "data:{\"index\":2,\"token\":{\"id\":6,\"text\":\"kabel\",\"logprob\":-0.5,\"special\":false},\"generated_text\":null,\"details\":null}\n\n",
            "data:{\"index\":3,\"token\":{\"id\":2,\"text\":\"</s>\",\"logprob\":0.0,\"special\":true},\"generated_text\":\"Geheimkabel\",\"details\":{\"finish_reason\":\"eos_token\",\"generated_tokens\":3,\"seed\":null,\"input_length\":4}}\n\n",
        ],
    ),
    case(
        "tgi, by flag",
        "/",
        TGI_REQUEST,
        SSE,
        &[
            "data:{\"index\":1,\"token\":{\"id\":5,\"text\":\"Geheim\",\"special\":false},\"generated_text\":\"kabel\",\"details\":{\"finish_reason\":\"length\",\"generated_tokens\":1}}\n\n",
        ],
    ),
    case(
        "tgi, error",
        "/generate_stream",
        TGI_REQUEST,
        SSE,
        &["data:{\"error\":\"Geheim\",\"error_type\":\"generation\"}\n\n"],
    ),
    case(
        "tgi, whole",
        "/generate",
        r#"{"inputs":"Geheim","parameters":{"details":true}}"#,
        JSON,
        &[
            r#"{"generated_text":"kabel","details":{"finish_reason":"stop_sequence","generated_tokens":9,"tokens":[{"id":1,"text":"kabel"}]}}"#,
        ],
    ),
    case("tgi, list", "/", r#"{"inputs":"Geheim"}"#, JSON, &[r#"[{"generated_text":"kabel"}]"#]),
    case(
        "llama.cpp",
        "/completion",
        r#"{"prompt":"Geheim","n_predict":3,"stream":true}"#,
        SSE,
        &[
            "data: {\"index\":0,\"content\":\"Geheim\",\"tokens\":[1],\"stop\":false,\"id_slot\":0,\"tokens_predicted\":1,\"tokens_evaluated\":4}\n\n",
            "data: {\"index\":0,\"content\":\"kabel\",\"tokens\":[2],\"stop\":false,\"id_slot\":0,\"tokens_predicted\":2,\"tokens_evaluated\":4}\n\n",
            "data: {\"index\":0,\"content\":\"\",\"tokens\":[],\"stop\":true,\"model\":\"m-1\",\"tokens_predicted\":3,\"tokens_evaluated\":4,\"stop_type\":\"limit\",\"stopping_word\":\"\",\"timings\":{\"prompt_n\":1,\"predicted_n\":3}}\n\n",
        ],
    ),
    case(
        "llama.cpp, infill",
        "/infill",
        r#"{"input_prefix":"Geheim","stream":false}"#,
        JSON,
        &[
            r#"{"index":0,"content":"kabel","stop":true,"stop_type":"eos","tokens_predicted":3,"tokens_evaluated":4}"#,
        ],
    ),
    case(
        "llama.cpp, no version in the path",
        "/completions",
        r#"{"prompt":"Geheim"}"#,
        JSON,
        &[
            r#"{"index":0,"content":"kabel","stop":true,"stop_type":"word","tokens_predicted":3,"tokens_evaluated":4}"#,
        ],
    ),
];

#[test]
fn native_apis_of_engines() {
    check(
        NATIVE_APIS_OF_ENGINES,
        &expect![[r"
            sglang: sglang.generate model - stream Ok finish length content 2 tokens Some(4)/Some(5) of meta_info max 16 first 2
            sglang, new text only: sglang.generate model - stream Ok finish stop content 3 tokens None/Some(4) of meta_info max 16 first 1
            sglang, new text of equal lengths: sglang.generate model - stream Ok finish stop content 3 tokens None/Some(3) of meta_info max 16 first 1
            sglang, text so far of equal lengths: sglang.generate model - stream Ok finish stop content 2 tokens None/Some(3) of meta_info max 16 first 1
            sglang, fewer bytes than tokens: sglang.generate model - stream Ok finish stop content 3 tokens None/Some(6) of meta_info max 16 first 1
            sglang, tokens without text: sglang.generate model - stream Ok finish stop content 2 tokens None/Some(2) of meta_info max 16 first 1
            sglang, tokens without text, whole: sglang.generate model - whole Ok finish stop content 0 tokens None/Some(2) of meta_info first -
            sglang, no tokens, whole: sglang.generate model - whole EmptyOutput finish stop content 0 tokens None/Some(0) of meta_info first -
            sglang, two: sglang.generate model - stream Ok finish - content 2 max 16 interleaved first 1
            sglang, aborted: sglang.generate model - stream InBandError finish abort content 1 tokens None/Some(2) of meta_info max 16 first 1
            sglang, whole: sglang.generate model - whole Ok finish stop content 0 tokens Some(4)/Some(5) of meta_info first -
            tgi: tgi.generate_stream model - stream Ok finish eos_token content 2 tokens Some(4)/Some(3) of details first 1
            tgi, by flag: tgi.generate model - stream Ok finish length content 1 tokens None/Some(1) of details max 16 first 1
            tgi, error: tgi.generate_stream model - stream InBandError finish - content 0 max 16 first -
            tgi, whole: tgi.generate model - whole Ok finish stop_sequence content 0 tokens None/Some(9) of details first -
            tgi, list: tgi.generate model - whole Ok finish - content 0 first -
            llama.cpp: llamacpp.completion model m-1 stream Ok finish limit content 2 tokens Some(4)/Some(3) of timings max 3 first 1
            llama.cpp, infill: llamacpp.infill model - whole Ok finish eos content 0 tokens Some(4)/Some(3) of timings first -
            llama.cpp, no version in the path: llamacpp.completion model - whole Ok finish word content 0 tokens Some(4)/Some(3) of timings first -
        "]],
    );
}
