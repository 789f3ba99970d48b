//! What produces no tokens, and what is not known.

use expect_test::expect;
use wire::socket::{DIR_SEND, FLAG_MID_STREAM, ROLE_ACCEPTED};

use super::{Case, JSON, SSE, case, check, no_secrets};
use crate::{
    request::record::Outcome,
    track::tests::{
        framing::post,
        rig::Rig,
        streams::{END, chunk},
    },
};

const INFER_REQUEST: &str =
    r#"{"inputs":[{"name":"text","datatype":"BYTES","shape":[1],"data":["Geheim"]}]}"#;
const OTHER_SERVERS: &[Case] = &[
    case(
        "embeddings",
        "/v1/embeddings",
        r#"{"input":"Geheim","model":"m-1"}"#,
        JSON,
        &[
            r#"{"object":"list","model":"m-1","data":[{"object":"embedding","index":0,"embedding":[0.5]}],"usage":{"prompt_tokens":3,"total_tokens":3}}"#,
        ],
    ),
    case(
        "rerank",
        "/v1/rerank",
        r#"{"query":"Geheim","documents":["kabel"],"model":"m-1"}"#,
        JSON,
        &[
            r#"{"id":"r","model":"m-1","usage":{"total_tokens":8},"results":[{"index":0,"document":{"text":"kabel"},"relevance_score":0.9}]}"#,
        ],
    ),
    case(
        "score",
        "/score",
        r#"{"text_1":"Geheim","text_2":"kabel","model":"m-1"}"#,
        JSON,
        &[r#"{"model":"m-1","data":[{"index":0,"score":0.5}],"usage":{"prompt_tokens":6,"total_tokens":6}}"#],
    ),
    case(
        "infer",
        "/v2/models/m-1/versions/3/infer",
        INFER_REQUEST,
        JSON,
        &[
            r#"{"model_name":"m-1","model_version":"3","outputs":[{"name":"o","datatype":"BYTES","shape":[1],"data":["kabel"]}]}"#,
        ],
    ),
    case("infer, error", "/v2/models/m-1/infer", INFER_REQUEST, JSON, &[r#"{"error":"Geheim"}"#]),
    case(
        "generate",
        "/v2/models/m-1/generate",
        r#"{"text_input":"Geheim","max_tokens":5}"#,
        JSON,
        &[r#"{"model_name":"m-1","model_version":"1","text_output":"kabel"}"#],
    ),
    case(
        "generate_stream",
        "/v2/models/m-1/generate_stream",
        r#"{"text_input":"Geheim"}"#,
        SSE,
        &[
            "data: {\"model_name\":\"m-1\",\"model_version\":\"1\",\"output_log_probs\":[0.0],\"text_output\":\"\"}\n\n",
            "data: {\"model_name\":\"m-1\",\"model_version\":\"1\",\"sequence_end\":false,\"text_output\":\"Geheim\"}\n\n",
            "data: {\"model_name\":\"m-1\",\"model_version\":\"1\",\"sequence_end\":false,\"text_output\":\"kabel\"}\n\n",
        ],
    ),
    case(
        "generate_stream, numbers",
        "/v2/models/m-1/generate_stream",
        r#"{"text_input":"Geheim"}"#,
        SSE,
        &[
            "data: {\"model_name\":\"m-1\",\"model_version\":\"1\",\"samples\":[]}\n\n",
            "data: {\"model_name\":\"m-1\",\"model_version\":\"1\",\"samples\":[[0.5,0.25]]}\n\n",
            "data: {\"model_name\":\"m-1\",\"model_version\":\"1\",\"texts\":[\"kabel\"]}\n\n",
        ],
    ),
    case("torchserve", "/predictions/m-1/2.0", "Geheim", "text/plain", &["kabel"]),
    case("unknown", "/detect", r#"{"image":"Geheim"}"#, JSON, &[r#"{"label":"kabel","score":0.5}"#]),
    case(
        "unknown, by shape",
        "/my/chat",
        r#"{"q":"Geheim"}"#,
        SSE,
        &[
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"Geheim\"}}\n\n",
            "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        ],
    ),
    case("unknown events", "/my/chat", r#"{"q":"Geheim"}"#, SSE, &["data: Geheim\n\n", "data: kabel\n\n"]),
];

#[test]
fn other_servers() {
    check(
        OTHER_SERVERS,
        &expect![[r"
            embeddings: openai.embeddings model m-1 whole Ok finish - content 0 tokens Some(3)/None of usage first -
            rerank: rerank model m-1 whole Ok finish - content 0 tokens Some(8)/None of usage first -
            score: score model m-1 whole Ok finish - content 0 tokens Some(6)/None of usage first -
            infer: kserve.infer model m-1 whole Ok finish - content 0 version 3 first -
            infer, error: kserve.infer model m-1 whole InBandError finish - content 0 first -
            generate: kserve.generate model m-1 whole Ok finish - content 0 version 1 max 5 first -
            generate_stream: kserve.generate_stream model m-1 stream Ok finish - content 2 version 1 first 2
            generate_stream, numbers: kserve.generate_stream model m-1 stream Ok finish - content 2 version 1 first 2
            torchserve: torchserve.predict model m-1 whole Ok finish - content 0 version 2.0 first -
            unknown: http model - whole Ok finish - content 0 first -
            unknown, by shape: http model - stream Ok finish - content 1 first 1
            unknown events: http model - stream Ok finish - content 0 first -
        "]],
    );
}

#[test]
fn tensors_behind_json_are_neither_read_nor_kept() {
    let json = r#"{"model_name":"m-1","model_version":"3","outputs":[{"name":"o","datatype":"BYTES"}]}"#;
    let body = format!("{json}{{\"model_name\":\"Geheim\"}}kabel");
    for at in [20, json.len() - 1, json.len(), json.len() + 1, body.len()] {
        let mut rig = Rig::new();
        rig.accept(1);
        rig.recv(1, post("/v2/models/m-1/infer", "{}"));
        rig.send(
            1,
            format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\
                 Inference-Header-Content-Length: {}\r\nContent-Length: {}\r\n\r\n{}",
                json.len(),
                body.len(),
                &body[..at]
            ),
        );
        if at < body.len() {
            rig.send(1, &body[at..]);
        }
        let done = rig.finished()[0];
        assert_eq!((done.model.as_deref(), done.model_version.as_deref()), (Some("m-1"), Some("3")));
        assert_eq!(done.outcome, Some(Outcome::Ok));
        no_secrets(&rig, "tensors");
        rig.assert_replays();
    }
}

#[test]
fn a_stream_is_expected_before_the_answer_says_so() {
    let (yes, no) = (Some(true), Some(false));
    for (path, request, expected) in [
        ("/api/chat", r#"{"model":"m"}"#, yes),
        ("/api/chat", r#"{"model":"m","stream":false}"#, no),
        ("/api/chat", "not JSON", None),
        ("/v2/models/m/generate_stream", "{}", yes),
        ("/v2/models/m/infer", "{}", no),
        ("/v1/chat/completions", r#"{"stream":true}"#, yes),
        ("/v1/chat/completions", "{}", None),
        ("/generate", r#"{"inputs":"a","stream":true}"#, yes),
    ] {
        let mut rig = Rig::new();
        rig.accept(1);
        rig.recv(1, post(path, request));
        rig.fail(1, DIR_SEND, -32);
        assert_eq!(rig.finished()[0].streaming, expected, "{path} {request}");
        rig.assert_replays();
    }
}

#[test]
fn a_stream_that_runs_at_attach_is_read_by_its_shape() {
    let mut rig = Rig::new();
    rig.open(1, ROLE_ACCEPTED, FLAG_MID_STREAM);
    let event = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"Geheim\"}}\n\n";
    rig.send(1, chunk(event));
    rig.send(1, chunk("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"));
    rig.send(1, END);
    let done = rig.finished()[0];
    assert_eq!((done.content_total, done.first_token_ns, done.outcome), (1, None, Some(Outcome::Ok)));
    no_secrets(&rig, "attach");
    rig.assert_replays();
}
