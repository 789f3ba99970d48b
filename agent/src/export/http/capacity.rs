//! `/api/v1/capacity`.

use axum::{
    Json,
    extract::{Query, State},
};
use serde::Deserialize;

use super::Context;
use crate::{
    diagnose::capacity::Question,
    export::{capacity::Answer, process},
};

/// What is asked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Only this service.
    service: Option<String>,
    /// Only this model.
    model: Option<String>,
    /// How far back, seconds.
    window: Option<u32>,
    /// Time to first token to keep, seconds.
    ttft: Option<f64>,
    /// Time between tokens to keep, seconds.
    tbt: Option<f64>,
}

pub(super) async fn get(State(context): State<Context>, Query(params): Query<Params>) -> Json<Answer> {
    let question = Question {
        window_ns: u64::from(params.window.unwrap_or(0)) * 1_000_000_000,
        ttft_slo_s: params.ttft.filter(|s| *s > 0.0),
        tbt_slo_s: params.tbt.filter(|s| *s > 0.0),
    };
    let (now_ns, wall_ns) = (process::monotonic_ns(), process::wall_ns());
    let wall = |ns: u64| (ns + wall_ns).checked_sub(now_ns);
    let answer = context.export.capacity.answer(question, now_ns, wall);
    Json(answer.only(params.service.as_deref(), params.model.as_deref()))
}
