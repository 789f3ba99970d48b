//! `/api/v1/findings` and `/api/v1/changes`.

use axum::{
    Json,
    extract::{Query, State},
};
use serde::Deserialize;

use super::Context;
use crate::export::{
    findings::{Changes, Findings},
    process,
};

/// How far back, in seconds; without it everything that is kept.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Since {
    since: Option<u32>,
}

impl Since {
    /// On the wall clock.
    fn ns(&self) -> u64 {
        let back = |seconds: u32| process::wall_ns().saturating_sub(u64::from(seconds) * 1_000_000_000);
        self.since.map_or(0, back)
    }
}

pub(super) async fn findings(State(context): State<Context>, Query(since): Query<Since>) -> Json<Findings> {
    let snapshot = context.export.snapshot.get();
    Json(snapshot.map(|it| it.diagnosed.findings_since(since.ns())).unwrap_or_default())
}

pub(super) async fn changes(State(context): State<Context>, Query(since): Query<Since>) -> Json<Changes> {
    let snapshot = context.export.snapshot.get();
    Json(snapshot.map(|it| it.diagnosed.changes_since(since.ns())).unwrap_or_default())
}
