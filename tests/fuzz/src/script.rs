//! Bytes as a list of calls: calls are separated by two octets that no protocol here has in a row, so that a change
//! inside one leaves the others as they are.

/// Between two calls.
const SEPARATOR: [u8; 2] = [0xfe, 0xdc];
/// Connections that a script speaks of.
pub const SOCKETS: usize = 4;

/// What happens in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// All bytes are captured.
    Whole,
    /// Head and tail are; the number says how they are cut.
    Gap(u8),
    /// Bytes before it were lost, that many squared.
    Behind(u8),
    /// A call fails, or is the end of a side.
    Fail(u8),
    /// The connection is seen, changes its state, or is acknowledged.
    Life(u8),
    /// The bytes come in calls of so many at most.
    Pieces(u8),
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct Call<'b> {
    /// Which connection, below [`SOCKETS`].
    pub sock: usize,
    /// Which way.
    pub dir: u8,
    /// What happens.
    pub act: Act,
    /// Its bytes.
    pub bytes: &'b [u8],
}

/// The calls in any bytes.
pub fn calls(mut data: &[u8]) -> Vec<Call<'_>> {
    let mut calls = Vec::new();
    while !data.is_empty() {
        let end = data.windows(2).position(|w| w == SEPARATOR);
        let (call, rest) = data.split_at(end.unwrap_or(data.len()));
        data = rest.get(2..).unwrap_or_default();
        if let [op, arg, bytes @ ..] = call {
            calls.push(Call {
                sock: usize::from(op >> 1 & 3),
                dir: op & 1,
                act: act(op >> 3 & 7, *arg),
                bytes,
            });
        }
    }
    calls
}

fn act(kind: u8, arg: u8) -> Act {
    match kind {
        3 => Act::Gap(arg),
        4 => Act::Behind(arg),
        5 => Act::Fail(arg),
        6 => Act::Life(arg),
        7 => Act::Pieces(arg),
        _ => Act::Whole,
    }
}

/// The bytes of a script of whole calls on the first connection, for seeds: direction and bytes.
pub fn script(calls: &[(u8, &[u8])]) -> Vec<u8> {
    let calls: Vec<Vec<u8>> = calls.iter().map(|(dir, bytes)| [&[*dir, 0], *bytes].concat()).collect();
    calls.join(&SEPARATOR[..])
}
