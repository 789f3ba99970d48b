//! The HTTP API: read-only, on a runtime of its own; nothing here can make the pipeline wait.

mod accept;
mod capacity;
mod findings;
mod gpus;
mod requests;
mod status;

use std::{
    future::Future,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use thiserror::Error;
use tokio::net::TcpListener;

use super::{Export, metrics::Id, process};

pub use requests::NEXT_SEQ;

/// Why the API cannot be served.
#[derive(Debug, Error)]
pub enum HttpError {
    /// The address cannot be bound.
    #[error("cannot listen on {address} (flag --listen, config key `listen`)")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The server failed.
    #[error("the HTTP server failed")]
    Serve(#[source] io::Error),
}

const INDEX: &str = "stagelens: /metrics, /api/v1/requests (limit, since_seq, follow=1), /api/v1/steps (the same), /api/v1/gpus, /api/v1/findings (since, in seconds), /api/v1/changes (the same), /api/v1/capacity (service, model, window, ttft, tbt, in seconds), /api/v1/status, /livez, /readyz\n";

#[derive(Clone, Debug)]
struct Context {
    export: Arc<Export>,
    /// One scrape at a time: each rewrites the values that are only known then.
    scrape: Arc<Mutex<()>>,
}

/// Binds the address.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, HttpError> {
    TcpListener::bind(address).await.map_err(|source| HttpError::Bind { address, source })
}

/// Serves until `stop` is done, then finishes the answers that run.
pub async fn serve(
    listener: TcpListener,
    export: Arc<Export>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), HttpError> {
    axum::serve(listener, router(export)).with_graceful_shutdown(stop).await.map_err(HttpError::Serve)
}

/// The routes.
pub fn router(export: Arc<Export>) -> Router {
    Router::new()
        .route("/", get(|| async { INDEX }))
        .route("/metrics", get(metrics))
        .route("/api/v1/requests", get(requests::get))
        .route("/api/v1/steps", get(requests::steps))
        .route("/api/v1/gpus", get(gpus::get))
        .route("/api/v1/findings", get(findings::findings))
        .route("/api/v1/changes", get(findings::changes))
        .route("/api/v1/capacity", get(capacity::get))
        .route("/api/v1/status", get(status::get))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .with_state(Context { export, scrape: Arc::default() })
}

async fn metrics(State(context): State<Context>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    let format = accept::format(accept);
    let text = {
        let _one_at_a_time = context.scrape.lock().unwrap_or_else(PoisonError::into_inner);
        let export = &context.export;
        export.snapshot.refresh(&export.metrics, process::monotonic_ns());
        export.metrics.set(
            Id::ApiFollowers,
            &[],
            (export.store.followers() + export.steps.followers()) as f64,
        );
        export.metrics.set_total(Id::ApiMissed, &[], export.store.missed() + export.steps.missed());
        export.metrics.encode(format)
    };
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, format.content_type())], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn livez(State(context): State<Context>) -> (StatusCode, &'static str) {
    if context.export.snapshot.alive(process::monotonic_ns()) {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the pipeline stands still\n")
    }
}

async fn readyz(State(context): State<Context>) -> (StatusCode, String) {
    let missing = context.export.snapshot.missing(process::monotonic_ns());
    if missing.is_empty() {
        (StatusCode::OK, "ready\n".into())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", missing.join("; ")))
    }
}
