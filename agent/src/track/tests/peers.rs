//! A client and a server of the `h2` crate, over a pipe that keeps what each of them writes.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use bytes::Bytes;
use h2::{RecvStream, SendStream, client, server, server::SendResponse};
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use wire::socket::{DIR_RECV, DIR_SEND};

use super::rig::Rig;

/// What no record may contain.
pub(super) const SECRET: &str = "s3cretZ0Word";

/// What a client asks for, and how it is answered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    /// A chat completion, in one piece.
    Json,
    /// The same, with so many content events.
    Events(usize),
    /// `ModelInfer` with this status; an answer only when that is 0.
    Infer(u32),
    /// `ModelInfer` refused with this status at once.
    TrailersOnly(u32),
    /// `ModelStreamInfer` with so many answers.
    Stream(usize),
    /// Some other method with so many messages.
    Messages(usize),
}

impl Call {
    /// For the server.
    fn text(self) -> String {
        match self {
            Self::Json => "Json 0".into(),
            Self::Events(n) => format!("Events {n}"),
            Self::Infer(status) => format!("Infer {status}"),
            Self::TrailersOnly(status) => format!("TrailersOnly {status}"),
            Self::Stream(n) => format!("Stream {n}"),
            Self::Messages(n) => format!("Messages {n}"),
        }
    }
}

/// Calls of both sides in order: direction as the server sees it, and bytes.
type Log = Arc<Mutex<Vec<(u8, Vec<u8>)>>>;

/// What two peers said.
pub(super) struct Conversation {
    pub calls: Vec<(u8, Vec<u8>)>,
}

impl Conversation {
    /// Of calls one after the other.
    pub(super) fn of(calls: &[Call]) -> Self {
        Self::run(calls, false)
    }

    /// Of calls at the same time.
    pub(super) fn at_once(calls: &[Call]) -> Self {
        Self::run(calls, true)
    }

    fn run(calls: &[Call], at_once: bool) -> Self {
        let log = Arc::new(Mutex::new(Vec::new()));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let calls = calls.to_vec();
        runtime.block_on(talk(calls, at_once, log.clone()));
        let calls = std::mem::take(&mut *log.lock().unwrap());
        Self { calls }
    }

    pub(super) fn feed(&self, rig: &mut Rig, sock: u64) {
        rig.accept(sock);
        for (dir, bytes) in &self.calls {
            // Whole, however long they are: what a gap does is other tests' matter.
            rig.call(sock, *dir, bytes, (bytes.len(), 0), bytes.len());
        }
    }
}

async fn talk(calls: Vec<Call>, at_once: bool, log: Log) {
    let (near, far) = tokio::io::duplex(1 << 20);
    let served = tokio::spawn(serve(Tap { pipe: far, dir: DIR_SEND, log: log.clone() }));
    let tap = Tap { pipe: near, dir: DIR_RECV, log };
    let mut builder = client::Builder::new();
    builder.initial_window_size(1 << 20).initial_connection_window_size(1 << 20);
    let (mut client, connection) = builder.handshake::<_, Bytes>(tap).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut tasks = Vec::new();
    for call in calls {
        client = client.ready().await.unwrap();
        let task = tokio::spawn(ask(client.clone(), call));
        if at_once {
            tasks.push(task);
        } else {
            task.await.unwrap();
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    drop(client);
    connection.await.unwrap().unwrap();
    served.await.unwrap();
}

async fn ask(mut client: client::SendRequest<Bytes>, call: Call) {
    let (path, kind, body): (_, _, Vec<u8>) = match call {
        Call::Json | Call::Events(_) => (
            "/v1/chat/completions?key=s3cretZ0Word",
            "application/json",
            format!(r#"{{"model":"m-1","messages":[{{"content":"{SECRET}"}}],"stream":true}}"#).into(),
        ),
        Call::Infer(_) | Call::TrailersOnly(_) => {
            ("/inference.GRPCInferenceService/ModelInfer", "application/grpc", message(&infer("m-1")))
        }
        Call::Stream(_) => {
            ("/inference.GRPCInferenceService/ModelStreamInfer", "application/grpc", message(&infer("m-1")))
        }
        Call::Messages(_) => ("/my.Service/Chat", "application/grpc+proto", message(SECRET.as_bytes())),
    };
    let mut never_indexed = HeaderValue::from_static(SECRET);
    never_indexed.set_sensitive(true);
    let request = Request::post(format!("http://host{path}"))
        .header("content-type", kind)
        .header("x-request-id", "r-7")
        .header("x-call", call.text())
        .header("authorization", format!("Bearer {SECRET}"))
        .header("cookie", never_indexed)
        .header("te", "trailers")
        .body(())
        .unwrap();
    let (answer, mut send) = client.send_request(request, false).unwrap();
    send.send_data(body.into(), true).unwrap();
    let Ok(answer) = answer.await else { panic!("no answer to {call:?}") };
    drain(answer.into_body()).await;
}

async fn drain(mut body: RecvStream) {
    while let Some(data) = body.data().await {
        let len = data.unwrap().len();
        body.flow_control().release_capacity(len).unwrap();
    }
    body.trailers().await.unwrap();
}

async fn serve(tap: Tap) {
    let mut connection = server::handshake(tap).await.unwrap();
    while let Some(stream) = connection.accept().await {
        let (request, respond) = stream.unwrap();
        tokio::spawn(answer(request, respond));
    }
}

async fn answer(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let call = request.headers()["x-call"].to_str().unwrap().to_owned();
    drain(request.into_body()).await;
    let (name, n) = call.split_once(' ').unwrap();
    let n: usize = n.parse().unwrap();
    let kind = match name {
        "Json" => "application/json",
        "Events" => "text/event-stream",
        _ => "application/grpc",
    };
    let mut head = Response::builder().header("content-type", kind).header("set-cookie", SECRET);
    if name == "TrailersOnly" {
        head = head.header("grpc-status", n).header("grpc-message", SECRET);
        respond.send_response(head.body(()).unwrap(), true).unwrap();
        return;
    }
    let mut send = respond.send_response(head.body(()).unwrap(), false).unwrap();
    match name {
        "Json" => push(&mut send, json(), true).await,
        "Events" => events(&mut send, n).await,
        _ => {
            let status = if name == "Infer" { n } else { 0 };
            let count = if name == "Infer" { usize::from(n == 0) } else { n };
            for _ in 0..count {
                let inner = infer("m-2");
                let len = u8::try_from(inner.len()).unwrap();
                let body = if name == "Stream" { [&[0x12, len][..], &inner].concat() } else { inner };
                push(&mut send, message(&body), false).await;
            }
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", status.into());
            trailers.insert("grpc-message", HeaderValue::from_static(SECRET));
            send.send_trailers(trailers).unwrap();
        }
    }
}

fn json() -> Vec<u8> {
    format!(
        r#"{{"model":"m-2","choices":[{{"message":{{"content":"{SECRET}"}},"finish_reason":"stop"}}],"usage":{{"completion_tokens":9}}}}"#
    )
    .into()
}

async fn events(send: &mut SendStream<Bytes>, n: usize) {
    for _ in 0..n {
        let event = format!(
            "data: {{\"model\":\"m-2\",\"choices\":[{{\"delta\":{{\"content\":\"{SECRET}\"}}}}]}}\n\n"
        );
        push(send, event.into(), false).await;
    }
    push(send, b"data: [DONE]\n\n".to_vec(), true).await;
}

/// Sends data, and lets the connection write it before anything else is sent.
async fn push(send: &mut SendStream<Bytes>, data: Vec<u8>, end: bool) {
    send.send_data(data.into(), end).unwrap();
    tokio::task::yield_now().await;
}

fn message(body: &[u8]) -> Vec<u8> {
    [&[0][..], &u32::try_from(body.len()).unwrap().to_be_bytes(), body].concat()
}

/// An inference message: the model, and a request id that is none of our business.
fn infer(model: &str) -> Vec<u8> {
    let field =
        |tag: u8, text: &str| [&[tag, u8::try_from(text.len()).unwrap()][..], text.as_bytes()].concat();
    [field(0x0a, model), field(0x1a, SECRET)].concat()
}

/// One end of the pipe.
struct Tap {
    pipe: DuplexStream,
    dir: u8,
    log: Log,
}

impl AsyncRead for Tap {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_read(cx, into)
    }
}

impl AsyncWrite for Tap {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.pipe).poll_write(cx, bytes);
        if let Poll::Ready(Ok(len)) = written {
            self.log.lock().unwrap().push((self.dir, bytes[..len].to_vec()));
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_shutdown(cx)
    }
}

/// The secret is in no record, be it plain or Huffman-coded (which begins at any bit).
pub(super) fn assert_no_secret(rig: &Rig) {
    // In parts, since a part is a leak too.
    let parts: Vec<&str> = (0..SECRET.len() - 5).map(|at| &SECRET[at..at + 6]).collect();
    let coded: Vec<String> = parts.iter().map(|part| bits_of(part)).collect();
    for record in &rig.records {
        let payload = &record[wire_header(record)..];
        for (part, coded) in parts.iter().zip(&coded) {
            assert!(
                !payload.windows(part.len()).any(|w| w == part.as_bytes()),
                "plain {part} in {payload:x?}"
            );
            assert!(!bits(payload).contains(coded.as_str()), "coded {part} in {payload:x?}");
        }
    }
}

fn bits(bytes: &[u8]) -> String {
    let bit = |at: usize| if bytes[at / 8] >> (7 - at % 8) & 1 == 1 { '1' } else { '0' };
    (0..bytes.len() * 8).map(bit).collect()
}

fn wire_header(record: &[u8]) -> usize {
    record.len().min(size_of::<wire::socket::Data>())
}

fn bits_of(text: &str) -> String {
    text.bytes()
        .map(|b| match b {
            b's' => "01000",
            b'3' => "011001",
            b'c' => "00100",
            b'r' => "101100",
            b'e' => "00101",
            b't' => "01001",
            b'Z' => "11111101",
            b'0' => "00000",
            b'W' => "1110010",
            b'o' => "00111",
            b'd' => "100100",
            _ => unreachable!("no letter of the secret"),
        })
        .collect()
}
