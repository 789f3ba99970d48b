//! A peer on hyper: every chunk is one `writev` of its size, its data and its end.
//!
//! The stamps are taken around the write calls themselves, below hyper. `answer.py` says what a request asks for.
//! With `TLS_CERT` and `TLS_KEY` it speaks TLS by rustls, and nothing is stamped.

#[path = "hyper/answer.rs"]
mod answer;
#[path = "hyper/secure.rs"]
mod secure;
#[path = "hyper/stamped.rs"]
mod stamped;

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio_rustls::TlsAcceptor;

use self::answer::{Pieces, Plan};
use self::stamped::{Log, Stamped};

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let acceptor = secure::acceptor()?;
    let mut stop = signal(SignalKind::terminate())?;
    announce(listener.local_addr()?.port())?;
    loop {
        tokio::select! {
            accepted = listener.accept() => drop(tokio::spawn(serve(accepted?.0, acceptor.clone()))),
            _ = stop.recv() => return Ok(()),
        }
    }
}

fn announce(port: u16) -> Result<()> {
    let path = std::env::var("PORT_FILE").context("PORT_FILE is not set")?;
    let fresh = format!("{path}.new");
    std::fs::write(&fresh, port.to_string())?;
    std::fs::rename(fresh, path).map_err(Into::into)
}

async fn serve(stream: TcpStream, acceptor: Option<TlsAcceptor>) {
    // Without delay a chunk's write is a packet, as in every server of streams.
    let _ = stream.set_nodelay(true);
    let log = Arc::new(Mutex::new(Log::default()));
    let Some(acceptor) = acceptor else {
        return speak(Stamped::new(TokioIo::new(stream), Arc::clone(&log)), log).await;
    };
    if let Ok(stream) = acceptor.accept(stream).await {
        speak(TokioIo::new(stream), log).await;
    }
}

async fn speak(io: impl Read + Write + Unpin + 'static, log: Arc<Mutex<Log>>) {
    let service = service_fn(move |request| answer(request, Arc::clone(&log)));
    // A client that hangs up is no failure of the peer.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
}

async fn answer(request: Request<Incoming>, log: Arc<Mutex<Log>>) -> Result<Response<Pieces>, Infallible> {
    let id = request.headers().get("x-request-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
    // A body that breaks off is answered like an empty one.
    let body =
        request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let plan = Plan::new(&body);
    log.lock().unwrap_or_else(PoisonError::into_inner).begin(plan.line(id, method, path));
    let mut response = Response::new(Pieces::new(plan.pieces(), plan.streaming));
    *response.status_mut() = hyper::StatusCode::from_u16(plan.status).unwrap_or_default();
    let kind = if plan.streaming { "text/event-stream" } else { "application/json" };
    response.headers_mut().insert("content-type", hyper::header::HeaderValue::from_static(kind));
    Ok(response)
}
