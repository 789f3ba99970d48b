//! `/api/v1/gpus`: devices, how they are used and fare, and who is on them.

use axum::{Json, extract::State};

use super::Context;
use crate::export::{gpus::Gpus, process};

pub(super) async fn get(State(context): State<Context>) -> Json<Gpus> {
    let snapshot = context.export.snapshot.get();
    Json(snapshot.map_or_else(Gpus::default, |snapshot| Gpus::of(&snapshot, process::monotonic_ns())))
}
