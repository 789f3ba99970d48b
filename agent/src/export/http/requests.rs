//! `/api/v1/requests` and `/api/v1/steps`: finished requests, and steps, as NDJSON, once or as a stream.

use std::{convert::Infallible, sync::Arc};

use axum::{
    body::Body,
    extract::{Query, State, rejection::QueryRejection},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use serde::Deserialize;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

use super::Context;
use crate::export::{
    Export,
    store::{Batch, Store},
};

/// Header of an answer without `follow`: the number to ask for next as `since_seq`.
pub const NEXT_SEQ: &str = "x-stagelens-seq";
const NDJSON: &str = "application/x-ndjson";
/// Lines handed to a follower at a time.
const BATCH: usize = 256;
/// Batches that may wait for a slow follower's socket.
const QUEUE: usize = 4;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Only the newest so many.
    limit: Option<usize>,
    /// Only those after this number.
    since_seq: Option<u64>,
    /// 1: go on with those to come.
    follow: Option<u8>,
}

/// Which of the two is asked for.
type Which = fn(&Export) -> &Store;

pub(super) async fn get(
    State(context): State<Context>,
    params: Result<Query<Params>, QueryRejection>,
) -> Response {
    lines(&context, params, |export| &export.store)
}

pub(super) async fn steps(
    State(context): State<Context>,
    params: Result<Query<Params>, QueryRejection>,
) -> Response {
    lines(&context, params, |export| &export.steps)
}

fn lines(context: &Context, params: Result<Query<Params>, QueryRejection>, which: Which) -> Response {
    let params = match params {
        Ok(Query(params)) => params,
        Err(rejection) => {
            let help = "parameters: limit=N, since_seq=N, follow=1";
            let text = format!("{}; {help}\n", rejection.body_text());
            return (StatusCode::BAD_REQUEST, text).into_response();
        }
    };
    let store = which(&context.export);
    let newest = params.limit.map_or(0, |limit| store.before_newest(limit));
    let since = newest.max(params.since_seq.unwrap_or(0));
    match params.follow {
        None | Some(0) => once(store, since),
        Some(_) => follow(&context.export, which, since),
    }
}

fn once(store: &Store, since: u64) -> Response {
    let batch = store.after(since, usize::MAX);
    let headers = [(header::CONTENT_TYPE.as_str(), NDJSON.to_owned()), (NEXT_SEQ, batch.last.to_string())];
    (headers, batch.lines.concat()).into_response()
}

fn follow(export: &Arc<Export>, which: Which, since: u64) -> Response {
    let (lines, body) = mpsc::channel(QUEUE);
    tokio::spawn(feed(Arc::clone(export), which, since, lines));
    ([(header::CONTENT_TYPE, NDJSON)], Body::from_stream(ReceiverStream::new(body))).into_response()
}

/// Sends lines after `since` until the client is gone or the run ends.
async fn feed(
    export: Arc<Export>,
    which: Which,
    mut since: u64,
    to: mpsc::Sender<Result<Bytes, Infallible>>,
) {
    let store = which(&export);
    // Subscribed before the first look, so that no line can come between the look and the wait.
    let mut bell = store.follow();
    // Lines that left the ring before the client came are not missed.
    since = since.max(store.after(since, 0).last);
    loop {
        match store.after(since, BATCH) {
            Batch { lines, .. } if lines.is_empty() => {
                if !next(&mut bell, &to).await {
                    return;
                }
            }
            Batch { lines, last, missed } => {
                count_missed(store, missed);
                since = last;
                if to.send(Ok(lines.concat().into())).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Waits for a new line; `false` when none will come or nobody listens.
async fn next(bell: &mut Option<watch::Receiver<u64>>, to: &mpsc::Sender<Result<Bytes, Infallible>>) -> bool {
    let Some(bell) = bell else { return false };
    tokio::select! {
        rung = bell.changed() => rung.is_ok(),
        () = to.closed() => false,
    }
}

fn count_missed(store: &Store, missed: u64) {
    if missed > 0 {
        store.count_missed(missed);
        tracing::warn!(missed, "a client of the API is too slow to follow; requests.keep could be larger");
    }
}
