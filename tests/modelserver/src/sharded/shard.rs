//! One GPU: each call is a step, run on the thread that serves the socket.

use std::os::unix::net::UnixListener as StdListener;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::{self, SendResponse};
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::UnixListener;
use tokio::task::{LocalSet, spawn_local};

use super::{CallError, Reply, frame, message};
use crate::args::Args;
use crate::part::inherited;
use crate::scheduler::Plan;
use crate::split::device::Device;

/// Serves the router until it closes the connection.
pub(crate) fn run(args: &Args) -> Result<(), CallError> {
    let listener = StdListener::from(inherited(args.input_fd)?);
    listener.set_nonblocking(true)?;
    std::thread::sleep(Duration::from_millis(args.dlopen_delay_ms));
    let shard = Rc::new((Device::open(args)?, args.clone()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(LocalSet::new().run_until(serve(listener, shard)))
}

async fn serve(listener: StdListener, shard: Rc<(Device, Args)>) -> Result<(), CallError> {
    let (stream, _) = UnixListener::from_std(listener)?.accept().await?;
    let mut connection = server::handshake(stream).await?;
    while let Some(call) = connection.accept().await {
        let (request, respond) = call?;
        let shard = Rc::clone(&shard);
        spawn_local(async move {
            // The router sees the connection end, and so does the loop above.
            drop(answer(&shard, request, respond).await);
        });
    }
    Ok(())
}

async fn answer(
    (device, args): &(Device, Args),
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Result<(), CallError> {
    let is_step = !request.uri().path().ends_with("/Warmup");
    let body = message(request.into_body()).await?;
    let reply = if is_step { Some(step(device, args, &serde_json::from_slice(&body)?)?) } else { None };
    let head = Response::builder().header("content-type", "application/grpc").body(())?;
    let mut stream = respond.send_response(head, false)?;
    stream.send_data(frame(&reply)?, false)?;
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    stream.send_trailers(trailers)?;
    Ok(())
}

fn step(device: &Device, args: &Args, plan: &Plan) -> Result<Reply, CallError> {
    let (launch, result) = device.run(plan, args)?;
    Ok(Reply { launch, result, alloc_failures: device.gpu.alloc_failures })
}
