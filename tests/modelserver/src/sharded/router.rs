//! The router: plans each step, calls every shard for it, and waits for all of them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest, handshake};
use http::Request;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use serde::Serialize;
use tokio::net::UnixStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{CallError, Reply, SERVICE, frame, message};
use crate::args::{Args, Part};
use crate::backend::{Backend, BackendError};
use crate::clock::{Stamp, now};
use crate::part::Child;
use crate::scheduler::{Plan, Scheduler};
use crate::split::{Command, Event};
use crate::step::{Admission, Job, Output, StepDone};
use crate::text;
use crate::trouble;
use crate::truth::Busy;

/// The server's side of the thread that calls the shards.
pub(crate) struct Router {
    /// `None` only while it is being closed.
    commands: Option<UnboundedSender<Command>>,
    events: Receiver<Event>,
    /// Readable when an event came.
    bell: Arc<OwnedFd>,
    shards: Vec<Child>,
    caller: Option<thread::JoinHandle<()>>,
    ready: bool,
}

impl Router {
    /// Starts the shards. Waits until they have loaded the driver, unless that is to be late.
    pub(crate) fn start(args: &Args) -> Result<Self, BackendError> {
        let (mut shards, mut paths) = (Vec::new(), Vec::new());
        for rank in 0..args.ranks as usize {
            let path = PathBuf::from(format!("/tmp/modelserver-{}-{rank}", std::process::id()));
            drop(std::fs::remove_file(&path));
            let listener = OwnedFd::from(UnixListener::bind(&path)?);
            shards.push(Child::start(Part::Shard, &[("input-fd", &listener)], Some(args.place_of(rank)))?);
            paths.push(path);
        }
        let bell =
            Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?);
        let ((commands, incoming), (outgoing, events)) = (unbounded_channel(), channel());
        let (args_of_caller, bell_of_caller) = (args.clone(), Arc::clone(&bell));
        let caller = thread::spawn(move || {
            let out = Out { events: outgoing, bell: bell_of_caller };
            if let Err(error) = call_shards(&args_of_caller, &paths, incoming, &out) {
                out.tell(Event::Failed(error.to_string()));
            }
        });
        let mut router =
            Self { commands: Some(commands), events, bell, shards, caller: Some(caller), ready: false };
        while args.dlopen_delay_ms == 0 && !router.ready {
            poll(&mut [PollFd::new(&router.bell, PollFlags::IN)], None).map_err(io::Error::from)?;
            router.turn(&mut Vec::new())?;
        }
        Ok(router)
    }

    fn command(&self, command: Command) -> Result<(), BackendError> {
        let sent = self.commands.as_ref().map(|commands| commands.send(command));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(BackendError::Engine("the thread that calls the shards has ended".to_owned())),
        }
    }
}

impl Backend for Router {
    fn ready(&self) -> bool {
        self.ready
    }

    fn wake(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        vec![(self.bell.as_fd(), PollFlags::IN)]
    }

    fn submit(&mut self, job: Job) -> Result<u64, BackendError> {
        let handoff = now();
        self.command(Command::Submit(job))?;
        Ok(handoff)
    }

    fn cancel(&mut self, id: u64) -> Result<(), BackendError> {
        self.command(Command::Cancel(id))
    }

    fn turn(&mut self, done: &mut Vec<StepDone>) -> Result<(), BackendError> {
        // Empty when it was not rung.
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        loop {
            match self.events.try_recv() {
                Ok(Event::Ready) => self.ready = true,
                Ok(Event::Step(step)) => done.push(step),
                Ok(Event::Failed(reason)) => return Err(BackendError::Engine(reason)),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.commands = None;
        // It has said why before it ended, if it did.
        self.caller.take().map(thread::JoinHandle::join);
        self.shards.clear();
    }
}

/// Where the calling thread tells what happened.
struct Out {
    events: Sender<Event>,
    bell: Arc<OwnedFd>,
}

impl Out {
    fn tell(&self, event: Event) {
        if self.events.send(event).is_ok() {
            // Full means that it rings already.
            let _ = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
        }
    }
}

fn call_shards(
    args: &Args,
    paths: &[PathBuf],
    commands: UnboundedReceiver<Command>,
    out: &Out,
) -> Result<(), CallError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let mut shards = Vec::new();
        for path in paths {
            shards.push(connect(path).await?);
        }
        for shard in &mut shards {
            message(call(shard, "Warmup", &()).await?.await?.into_body()).await?;
        }
        out.tell(Event::Ready);
        let scheduler = Scheduler::new(args.max_batch as usize, args.step_tokens);
        let batches = Batches { shards, scheduler, busy: Busy::default(), index: 0 };
        batches.run(commands, out).await
    })
}

/// A shard accepts when it has loaded the driver; until then the connection waits in its socket.
async fn connect(path: &PathBuf) -> Result<SendRequest<Bytes>, CallError> {
    let stream = UnixStream::connect(path).await?;
    drop(std::fs::remove_file(path));
    let (client, connection) = handshake(stream).await?;
    // Its end shows in the calls.
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

async fn call(
    shard: &mut SendRequest<Bytes>,
    method: &str,
    request: &(impl Serialize + Sync),
) -> Result<ResponseFuture, CallError> {
    let mut ready = shard.clone().ready().await?;
    let head = Request::post(format!("http://localhost{SERVICE}/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())?;
    let (response, mut body) = ready.send_request(head, false)?;
    body.send_data(frame(request)?, true)?;
    Ok(response)
}

/// What runs on the shards.
struct Batches {
    shards: Vec<SendRequest<Bytes>>,
    scheduler: Scheduler,
    busy: Busy,
    index: u64,
}

impl Batches {
    /// Steps while there is something to compute, until nobody can ask for more.
    async fn run(mut self, mut commands: UnboundedReceiver<Command>, out: &Out) -> Result<(), CallError> {
        loop {
            while let Ok(command) = commands.try_recv() {
                self.take(command);
            }
            let sched_ns = now();
            self.scheduler.hold_at_most(trouble::held());
            let Some(plan) = self.scheduler.plan() else {
                let Some(command) = commands.recv().await else { return Ok(()) };
                self.take(command);
                continue;
            };
            out.tell(Event::Step(self.step(&plan, sched_ns).await?));
        }
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Submit(job) => self.scheduler.submit(job),
            Command::Cancel(id) => self.scheduler.remove(id),
        }
    }

    /// All shards at once; the step is over when the last one is.
    async fn step(&mut self, plan: &Plan, sched_ns: u64) -> Result<StepDone, CallError> {
        let method = if plan.prefill_tokens() > 0 { "Prefill" } else { "Decode" };
        let mut calls = Vec::new();
        for shard in &mut self.shards {
            calls.push(call(shard, method, plan).await?);
        }
        let mut replies: Vec<Reply> = Vec::new();
        for call in calls {
            replies.push(serde_json::from_slice(&message(call.await?.into_body()).await?)?);
        }
        Ok(self.done(plan, sched_ns, &replies))
    }

    fn done(&mut self, plan: &Plan, sched_ns: u64, replies: &[Reply]) -> StepDone {
        let launch = replies.iter().map(|reply| reply.launch).min_by_key(|stamp| stamp.0).unwrap_or_default();
        let result: Stamp =
            replies.iter().map(|reply| reply.result).max_by_key(|stamp| stamp.1).unwrap_or_default();
        let outputs = plan.members.iter().map(|member| {
            let job = self.scheduler.job(member.id);
            let queue = |job: &Job| self.busy.measure(job.read_ns, launch.0);
            let admission =
                job.filter(|_| member.first).map(|job| Admission { sched_ns, queue_ns: queue(job) });
            let text = member.token.zip(job).map(|(token, job)| text::token(job.seed, token).to_owned());
            Output { id: member.id, text, last: member.last, admission }
        });
        let outputs = outputs.collect();
        self.busy.begin(launch.0);
        self.busy.end(result.1);
        let last = plan.members.iter().filter(|member| member.last);
        last.for_each(|member| self.scheduler.remove(member.id));
        self.index += 1;
        StepDone {
            index: self.index - 1,
            launch,
            result,
            batch: u32::try_from(plan.members.len()).unwrap_or(u32::MAX),
            outputs,
            alloc_failures: replies.iter().map(|reply| reply.alloc_failures).sum(),
        }
    }
}
