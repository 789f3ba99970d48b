//! The closed set of events, and how a record becomes one.

use wire::{Header, Kind, cuda, memory, process, rare, socket, tls};
use zerocopy::FromBytes;

use super::{DecodeError, Observation};

/// When and in whose context an event happened; the part of [`Header`] that later stages need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// `CLOCK_MONOTONIC` ns.
    pub time_ns: u64,
    /// Process (thread group); 0 in interrupt context.
    pub tgid: u32,
    /// Thread; 0 in interrupt context.
    pub tid: u32,
}

impl From<&Header> for Stamp {
    fn from(header: &Header) -> Self {
        Self { time_ns: header.time_ns, tgid: header.tgid, tid: header.tid }
    }
}

/// Captured bytes of one socket call. Mutable, because parsing masks them in place.
#[derive(Debug, PartialEq, Eq)]
pub struct Payload<'a> {
    /// First bytes of the call; all of them when `tail` is empty and the lengths agree.
    pub head: &'a mut [u8],
    /// Last bytes of the call.
    pub tail: &'a mut [u8],
}

/// Everything that can happen, as far as the core is concerned.
#[derive(Debug)]
pub enum Event<'a> {
    /// Bytes, an end or an error on a socket.
    SocketData(socket::Data, Payload<'a>),
    /// A socket seen for the first time.
    SocketOpen(socket::Open),
    /// A connection closing.
    SocketState(socket::State),
    /// Everything written is acknowledged.
    SocketAck(socket::Ack),
    /// A new listening port.
    SocketListen(socket::Listen),
    /// A result marker with its work.
    Step(cuda::CountedStep),
    /// Work that is counted before anybody waits for it.
    Tally(cuda::Tally),
    /// A memory call.
    Memory(memory::Call),
    /// Which device a context, or a number of CUDA's, is.
    Context(cuda::Context),
    /// The driver gave somebody the address of a function.
    Resolved(rare::Resolved),
    /// Kernels were loaded or compiled, or a graph made executable.
    Rare(rare::Rare),
    /// A process replaced its image.
    Exec(process::Process),
    /// A watched process started another.
    Fork(process::Process),
    /// A watched process ended.
    Exit(process::Process),
    /// An unwatched process called CUDA.
    CudaSeen(process::Process),
    /// What was found out about a connection that speaks TLS.
    TlsVerdict(tls::Verdict),
    /// Something the agent saw itself.
    Observation(Stamp, Box<Observation>),
}

/// Decodes one record. The payload of socket data stays in `record` and is lent to the event.
pub fn decode(record: &mut [u8]) -> Result<Event<'_>, DecodeError> {
    let have = record.len();
    let (header, _) = Header::read_from_prefix(record)
        .map_err(|_| DecodeError::Short { have, need: size_of::<Header>() })?;
    if header.abi != wire::ABI {
        return Err(DecodeError::Abi { found: header.abi });
    }
    let kind = Kind::from_u16(header.kind).ok_or(DecodeError::UnknownKind { kind: header.kind })?;
    let len = header.len as usize;
    let Some(record) = record.get_mut(..len) else {
        return Err(DecodeError::Short { have, need: len });
    };
    Ok(match kind {
        Kind::SocketData => return socket_data(record),
        Kind::SocketOpen => Event::SocketOpen(fixed(record)?),
        Kind::SocketState => Event::SocketState(fixed(record)?),
        Kind::SocketAck => Event::SocketAck(fixed(record)?),
        Kind::SocketListen => Event::SocketListen(fixed(record)?),
        Kind::Step => Event::Step(step(record)?),
        Kind::Tally => Event::Tally(fixed(record)?),
        Kind::Memory => Event::Memory(fixed::<cuda::Memory>(record)?.into()),
        Kind::MemoryCall => Event::Memory(fixed(record)?),
        Kind::Context => Event::Context(fixed(record)?),
        Kind::Resolved => Event::Resolved(fixed(record)?),
        Kind::Rare => Event::Rare(fixed(record)?),
        Kind::Exec => Event::Exec(fixed(record)?),
        Kind::Fork => Event::Fork(fixed(record)?),
        Kind::Exit => Event::Exit(fixed(record)?),
        Kind::CudaSeen => Event::CudaSeen(fixed(record)?),
        Kind::TlsVerdict => Event::TlsVerdict(fixed(record)?),
        // It ends where links are made: its plaintext comes as a socket's.
        Kind::TlsData => return Err(DecodeError::UnknownKind { kind: header.kind }),
        Kind::Observation => return observation(&header, record),
    })
}

/// How many bytes of a record mean something. A record of the ring buffer is longer, and what stands behind its end
/// is what earlier records left there, payload that nothing has masked among it: it must not be kept.
pub fn meaningful(record: &[u8]) -> usize {
    let len = Header::read_from_prefix(record).map_or(record.len(), |(header, _)| header.len as usize);
    len.clamp(size_of::<Header>().min(record.len()), record.len())
}

/// Blanks what a record may hold beside its fixed fields, for one that cannot be decoded and so is not masked
/// either. It fails in the same way afterwards.
pub fn blank(record: &mut [u8]) {
    let is_data =
        Header::read_from_prefix(record).is_ok_and(|(header, _)| header.kind == Kind::SocketData as u16);
    let keep = if is_data { size_of::<socket::Data>() } else { size_of::<Header>() };
    record.iter_mut().skip(keep).for_each(|b| *b = 0);
}

fn fixed<T: FromBytes>(record: &[u8]) -> Result<T, DecodeError> {
    T::read_from_prefix(record)
        .map(|(value, _)| value)
        .map_err(|_| DecodeError::Short { have: record.len(), need: size_of::<T>() })
}

/// A step. Those of older recordings end before what is fresh of it, or before its context.
fn step(record: &[u8]) -> Result<cuda::CountedStep, DecodeError> {
    if record.len() >= size_of::<cuda::CountedStep>() {
        return fixed(record);
    }
    let mut whole = [0; size_of::<cuda::Step>()];
    let step: cuda::Step = if record.len() == cuda::STEP_WITHOUT_CONTEXT {
        whole[..record.len()].copy_from_slice(record);
        fixed(&whole)?
    } else {
        fixed(record)?
    };
    Ok(cuda::CountedStep { step, fresh: step.work })
}

fn socket_data(record: &mut [u8]) -> Result<Event<'_>, DecodeError> {
    let data: socket::Data = fixed(record)?;
    let have = record.len();
    let captured = &mut record[size_of::<socket::Data>()..];
    let (head_len, tail_len) = (usize::from(data.head_len), usize::from(data.tail_len));
    if head_len + tail_len > captured.len() {
        return Err(DecodeError::Short { have, need: size_of::<socket::Data>() + head_len + tail_len });
    }
    if usize::try_from(data.result).unwrap_or(0) < head_len + tail_len {
        return Err(DecodeError::BadField { kind: Kind::SocketData, field: "captured length" });
    }
    if data.dir > socket::DIR_SEND {
        return Err(DecodeError::BadField { kind: Kind::SocketData, field: "direction" });
    }
    let (head, rest) = captured.split_at_mut(head_len);
    Ok(Event::SocketData(data, Payload { head, tail: &mut rest[..tail_len] }))
}

fn observation<'a>(header: &Header, record: &[u8]) -> Result<Event<'a>, DecodeError> {
    let json = record.get(size_of::<Header>()..).unwrap_or_default();
    let observation = serde_json::from_slice(json).map_err(DecodeError::Observation)?;
    Ok(Event::Observation(header.into(), Box::new(observation)))
}

#[cfg(test)]
mod tests;
