//! Stream capture and graphs. A graph is a duration: the sum of what was captured.
//!
//! Simpler than the real thing: parallel branches add up, and a branch that never rejoins the origin stream is not
//! noticed when the capture ends.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, Weak};

use crate::abi::{Out, give};
use crate::error::Error;
use crate::handles::{Handles, lock};
use crate::stream::{self, Default, Kind, Stream};
use crate::timeline::Op;
use crate::truth;

/// What a graph does when it runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Graph {
    duration: u64,
    kernels: u64,
}

/// A capture under way, shared by the streams that take part.
pub(crate) struct Capture {
    /// Stream that began it and must end it.
    origin: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    graph: Graph,
    /// Streams that came in by waiting for a captured event.
    joined: Vec<Weak<Stream>>,
    invalid: bool,
    ended: bool,
}

static GRAPHS: Handles<Graph> = Handles::new(0x7600_0000_0000);
static EXECUTABLES: Handles<Graph> = Handles::new(0x7700_0000_0000);

impl Capture {
    /// Takes in an operation instead of running it.
    pub(crate) fn add(&self, op: Op, duration: u64) -> Result<(), Error> {
        let mut state = lock(&self.state);
        if state.invalid {
            return Err(Error::STREAM_CAPTURE_INVALIDATED);
        }
        state.graph.duration += duration;
        state.graph.kernels += match op {
            Op::Kernel { .. } => 1,
            Op::Graph { kernels, .. } => kernels,
            Op::Copy { .. } | Op::Memset { .. } => 0,
        };
        truth::captured(op);
        Ok(())
    }

    /// Something happened that a capture does not survive.
    pub(crate) fn invalidate(&self) {
        lock(&self.state).invalid = true;
    }

    /// The stream waits for an event of this capture and so becomes part of it.
    pub(crate) fn join(self: &Arc<Self>, stream: &Arc<Stream>) -> Result<(), Error> {
        if stream.kind == Kind::Legacy {
            return Err(Error::STREAM_CAPTURE_UNSUPPORTED);
        }
        let mut line = lock(&stream.line);
        match &line.capture {
            Some(own) if Arc::ptr_eq(own, self) => return Ok(()),
            Some(_) => return Err(Error::STREAM_CAPTURE_MERGE),
            None => {}
        }
        let mut state = lock(&self.state);
        if state.ended {
            return Err(Error::CAPTURED_EVENT);
        }
        state.joined.push(Arc::downgrade(stream));
        line.capture = Some(Arc::clone(self));
        Ok(())
    }

    /// Lets the joined streams go and says what was captured.
    fn end(self: &Arc<Self>) -> Result<Graph, Error> {
        let (joined, graph, invalid) = {
            let mut state = lock(&self.state);
            state.ended = true;
            (std::mem::take(&mut state.joined), state.graph, state.invalid)
        };
        for stream in joined.iter().filter_map(Weak::upgrade) {
            lock(&stream.line).capture.take_if(|c| Arc::ptr_eq(c, self));
        }
        if invalid { Err(Error::STREAM_CAPTURE_INVALIDATED) } else { Ok(graph) }
    }
}

fn begin(stream: &Stream) -> Result<(), Error> {
    if stream.kind == Kind::Legacy {
        return Err(Error::STREAM_CAPTURE_UNSUPPORTED);
    }
    let mut line = lock(&stream.line);
    if line.capture.is_some() {
        return Err(Error::ILLEGAL_STATE);
    }
    line.capture = Some(Arc::new(Capture { origin: stream.id, state: Mutex::default() }));
    Ok(())
}

fn end(stream: &Stream, graph: Out<'_, u64>) -> Result<(), Error> {
    let graph = graph.ok_or(Error::INVALID_VALUE)?;
    *graph = 0;
    let mut line = lock(&stream.line);
    let capture = line.capture.take_if(|capture| capture.origin == stream.id);
    if line.capture.is_some() {
        return Err(Error::STREAM_CAPTURE_UNMATCHED);
    }
    // Ending locks the joined streams; never two streams at once.
    drop(line);
    let captured = capture.ok_or(Error::ILLEGAL_STATE)?.end()?;
    give(Some(graph), GRAPHS.insert(Arc::new(captured)))
}

fn instantiate(executable: Out<'_, u64>, graph: u64) -> Result<(), Error> {
    let graph = GRAPHS.get(graph)?;
    let executable = executable.ok_or(Error::INVALID_VALUE)?;
    give(Some(executable), EXECUTABLES.insert(graph))
}

fn launch(executable: u64, stream: &Stream) -> Result<(), Error> {
    let Graph { duration, kernels } = *EXECUTABLES.get(executable)?;
    stream.submit(Op::Graph { duration, kernels }).map(drop)
}

export! {
    /// From now on the stream's operations are collected instead of run. All modes behave as relaxed.
    fn cuStreamBeginCapture_v2(stream: u64, _mode: u32) {
        begin(&*stream::resolve(stream, Default::Legacy)?)
    }

    /// From now on the stream's operations are collected instead of run. All modes behave as relaxed.
    fn cuStreamBeginCapture_v2_ptsz(stream: u64, _mode: u32) {
        begin(&*stream::resolve(stream, Default::PerThread)?)
    }

    /// As before CUDA 10.1, without a mode.
    fn cuStreamBeginCapture(stream: u64) {
        begin(&*stream::resolve(stream, Default::Legacy)?)
    }

    /// As before CUDA 10.1, without a mode.
    fn cuStreamBeginCapture_ptsz(stream: u64) {
        begin(&*stream::resolve(stream, Default::PerThread)?)
    }

    /// The graph that is given stays as it is: what is captured becomes one of its own.
    fn cuStreamBeginCaptureToGraph(
        stream: u64, graph: u64, _dependencies: *const u64, _edges: *const c_void, _count: usize, _mode: u32,
    ) {
        GRAPHS.check(graph)?;
        begin(&*stream::resolve(stream, Default::Legacy)?)
    }

    /// The graph that is given stays as it is: what is captured becomes one of its own.
    fn cuStreamBeginCaptureToGraph_ptsz(
        stream: u64, graph: u64, _dependencies: *const u64, _edges: *const c_void, _count: usize, _mode: u32,
    ) {
        GRAPHS.check(graph)?;
        begin(&*stream::resolve(stream, Default::PerThread)?)
    }

    /// An empty graph. Flags are not looked at.
    fn cuGraphCreate(graph: Out<'_, u64>, _flags: u32) {
        give(graph, GRAPHS.insert(Arc::default()))
    }

    /// Ends the capture and returns it as a graph.
    fn cuStreamEndCapture(stream: u64, graph: Out<'_, u64>) {
        end(&*stream::resolve(stream, Default::Legacy)?, graph)
    }

    /// Ends the capture and returns it as a graph.
    fn cuStreamEndCapture_ptsz(stream: u64, graph: Out<'_, u64>) {
        end(&*stream::resolve(stream, Default::PerThread)?, graph)
    }

    /// Makes a graph executable. There is nothing to say of failures.
    fn cuGraphInstantiate_v2(
        executable: Out<'_, u64>, graph: u64, _node: *mut u64, _log: *mut u8, _log_len: usize,
    ) {
        instantiate(executable, graph)
    }

    /// Makes a graph executable. Flags are not looked at.
    fn cuGraphInstantiateWithFlags(executable: Out<'_, u64>, graph: u64, _flags: u64) {
        instantiate(executable, graph)
    }

    /// Makes a graph executable. Parameters are not looked at.
    fn cuGraphInstantiateWithParams(executable: Out<'_, u64>, graph: u64, _parameters: *mut c_void) {
        instantiate(executable, graph)
    }

    /// Makes a graph executable. Parameters are not looked at.
    fn cuGraphInstantiateWithParams_ptsz(executable: Out<'_, u64>, graph: u64, _parameters: *mut c_void) {
        instantiate(executable, graph)
    }

    /// Destroys a graph; what was made from it stays.
    fn cuGraphDestroy(graph: u64) {
        GRAPHS.remove(graph).map(drop)
    }

    /// Destroys an executable graph.
    fn cuGraphExecDestroy(executable: u64) {
        EXECUTABLES.remove(executable).map(drop)
    }

    /// Runs an executable graph.
    fn cuGraphLaunch(executable: u64, stream: u64) {
        launch(executable, &*stream::resolve(stream, Default::Legacy)?)
    }

    /// Runs an executable graph.
    fn cuGraphLaunch_ptsz(executable: u64, stream: u64) {
        launch(executable, &*stream::resolve(stream, Default::PerThread)?)
    }
}
