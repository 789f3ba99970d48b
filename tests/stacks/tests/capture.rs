//! How much of a call the agent gets to see: many messages in one call, on real sockets.

use std::net::TcpListener as StdListener;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use h2::client::SendRequest;
use h2::server::SendResponse;
use h2::{RecvStream, client, server};
use http::{Request, Response};
use stacks::machine::Need;
use stacks::watch::Watch;
use system::agent::Record;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::Test;

pub(crate) const TESTS: &[(&str, Need, Test)] =
    &[("http2_many_streams_in_one_call", Need::Nothing, http2_many_streams)];

/// How long a load may take.
const LIMIT: Duration = Duration::from_secs(30);
const STREAMS: u32 = 16;
const REQUESTS: u32 = 320;
const PROMPT: usize = 3600;
const ANSWER: usize = 1200;

/// Sixteen requests at a time on one connection, each longer than what is captured of a call by itself, from a client
/// that writes many of them at once. Headers are numbers of tables: one lost table entry would show in all that follow.
fn http2_many_streams(dir: &Path) -> Result<()> {
    let runtime = Runtime::new()?;
    let listener = StdListener::bind(("127.0.0.1", 0))?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    let mut watch = Watch::ports(&[port], dir)?;
    let _context = runtime.enter();
    let server = tokio::spawn(serve(TcpListener::from_std(listener)?));
    runtime.block_on(async { tokio::time::timeout(LIMIT, load(port)).await })??;
    watch.records(port, REQUESTS as usize)?;
    let status = watch.agent.status()?;
    let records = watch.finish(port)?;
    server.abort();
    let faults: Vec<String> = (0..REQUESTS).filter_map(|n| fault(n, &records)).collect();
    let cut = status.health.kernel.get("call_cut").copied();
    ensure!(faults.is_empty(), "{} faults (calls cut: {cut:?}):\n{}", faults.len(), faults.join("\n"));
    ensure!(records.len() == REQUESTS as usize, "{} records of {REQUESTS}", records.len());
    ensure!(status.health.dropped() == 0, "records were lost: {:?}", status.health.kernel);
    Ok(())
}

/// What the agent says wrongly of the `n`-th request.
fn fault(n: u32, records: &[Record]) -> Option<String> {
    let id = id(n);
    let record = records.iter().find(|record| record.request_id.as_deref() == Some(&id));
    let Some(record) = record else { return Some(format!("{id}: no record")) };
    let said = (
        record.path.as_deref(),
        record.model.as_deref(),
        record.status,
        record.outcome.as_deref(),
        record.flags.is_empty(),
    );
    let is = (Some("/v1/chat/completions"), Some("h2-model"), Some(200), Some("ok"), true);
    (said != is).then(|| format!("{id}: {said:?}, flags {:?}", record.flags))
}

fn id(n: u32) -> String {
    format!("h2-{n}")
}

async fn load(port: u16) -> Result<()> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let (sender, connection) = client::handshake(stream).await?;
    let connection = tokio::spawn(connection);
    let mut clients = JoinSet::new();
    for first in 0..STREAMS {
        let mut sender = sender.clone();
        clients.spawn(async move {
            for n in (first..REQUESTS).step_by(STREAMS as usize) {
                request(&mut sender, n).await?;
            }
            anyhow::Ok(())
        });
    }
    drop(sender);
    while let Some(client) = clients.join_next().await {
        client??;
    }
    connection.await?.context("the client's connection")
}

async fn request(sender: &mut SendRequest<Bytes>, n: u32) -> Result<()> {
    let mut ready = sender.clone().ready().await?;
    let request = Request::post("http://peer/v1/chat/completions")
        .header("content-type", "application/json")
        .header("x-request-id", id(n))
        .body(())?;
    let (response, mut body) = ready.send_request(request, false)?;
    let prompt = "lorem ".repeat(PROMPT / 6);
    let text = format!(r#"{{"messages":[{{"role":"user","content":"{prompt}"}}],"model":"h2-model"}}"#);
    body.send_data(text.into(), true)?;
    let answer = response.await?;
    drain(answer.into_body()).await
}

async fn drain(mut body: RecvStream) -> Result<()> {
    while let Some(bytes) = body.data().await {
        let len = bytes?.len();
        body.flow_control().release_capacity(len)?;
    }
    Ok(())
}

async fn serve(listener: TcpListener) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let mut connection = server::handshake(stream).await?;
            while let Some(accepted) = connection.accept().await {
                let (request, respond) = accepted?;
                tokio::spawn(answer(request, respond));
            }
            anyhow::Ok(())
        });
    }
}

async fn answer(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) -> Result<()> {
    drain(request.into_body()).await?;
    let response = Response::builder().header("content-type", "application/json").body(())?;
    let mut body = respond.send_response(response, false)?;
    let text = "lorem ".repeat(ANSWER / 6);
    let text = format!(
        r#"{{"object":"chat.completion","model":"h2-model","choices":[{{"index":0,"message":{{"content":"{text}"}},"finish_reason":"stop"}}]}}"#
    );
    body.send_data(text.into(), true).map_err(Into::into)
}
