//! How well an inner exchange fits an outer one, from what both show. Pure.

use std::cmp::Reverse;

use crate::track::{Client, Sight};

/// What only the same request has.
const IDENTITY: i32 = 8;
/// A body of the same length: proxies that hand requests on as they are keep it.
const BODY: i32 = 2;
/// An answer that runs ahead of the one that it is said to be the source of.
const BACKWARDS: i32 = -16;
/// A write is stamped at its end: whoever reads what was written, on another processor, can have passed it on before
/// that. A scheduling slice.
const OVERTAKEN_NS: u64 = 20_000_000;
/// At least this of what could be the only one: one thing can differ, as the model that a proxy renames.
const LIKELY: i32 = -1;
/// Ends that lie further apart than this are not close; nor are those of which one is not known.
const FAR_NS: u64 = 5_000_000;

/// Compared in the order of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fit {
    /// What one request and another seldom share, less what the same request would not differ in.
    pub(super) strong: i32,
    /// What many requests share.
    weak: i32,
    /// How far apart the ends of the answers lie, ns.
    apart_ns: Reverse<u64>,
}

impl Fit {
    /// Of two exchanges whose times allow it. `client` is who sent the inner one; `is_free`: nothing else belongs to
    /// the outer one so far; `is_whole`: the outer answer was not broken off.
    pub(super) fn of(outer: &Sight, inner: &Sight, client: Client, is_free: bool, is_whole: bool) -> Self {
        let is_same_thread = client.tid != 0 && client.tid == outer.reader_tid;
        let strong = requests(outer, inner) + answers(outer, inner) + order(outer, inner, is_whole);
        let weak = 2 * i32::from(is_free)
            + 2 * i32::from(is_same_thread)
            + agreement(outer.path.as_deref(), inner.path.as_deref())
            + agreement(outer.method.as_deref(), inner.method.as_deref())
            + agreement(outer.streaming, inner.streaming);
        Self { strong, weak, apart_ns: Reverse(apart(outer, inner)) }
    }

    /// Whether they may belong together if there is nothing else.
    pub(super) fn is_likely(self) -> bool {
        self.strong >= LIKELY
    }

    /// Whether they have an identifier in common.
    pub(super) fn is_identity(self) -> bool {
        self.strong >= IDENTITY
    }
}

/// 1 when both are known and the same, -1 when they differ.
fn agreement<T: PartialEq>(outer: Option<T>, inner: Option<T>) -> i32 {
    match (outer, inner) {
        (Some(a), Some(b)) => {
            if a == b {
                1
            } else {
                -1
            }
        }
        _ => 0,
    }
}

/// As above, but to differ means nothing: the process between may have changed it.
fn equality<T: PartialEq>(outer: Option<T>, inner: Option<T>) -> i32 {
    agreement(outer, inner).max(0)
}

fn requests(outer: &Sight, inner: &Sight) -> i32 {
    let has_body = inner.body_bytes.is_some_and(|bytes| bytes > 0);
    IDENTITY * equality(outer.request_id.as_deref(), inner.request_id.as_deref())
        + IDENTITY * equality(outer.trace_id.as_deref(), inner.trace_id.as_deref())
        + BODY * i32::from(has_body) * equality(outer.body_bytes, inner.body_bytes)
        + agreement(outer.model.as_deref(), inner.model.as_deref())
        + agreement(outer.max_tokens, inner.max_tokens)
}

fn answers(outer: &Sight, inner: &Sight) -> i32 {
    equality(outer.chunks, inner.chunks) + agreement(outer.output_tokens, inner.output_tokens)
}

/// The inner answer goes on when the outer one is over.
pub(super) fn outlasts(outer: &Sight, inner: &Sight) -> bool {
    is_backwards(outer.last_byte_out_ns, inner.last_byte_out_ns)
}

fn is_backwards(outer: Option<u64>, inner: Option<u64>) -> bool {
    outer.zip(inner).is_some_and(|(outer, inner)| outer.saturating_add(OVERTAKEN_NS) < inner)
}

/// Nothing can be answered before it is known.
fn order(outer: &Sight, inner: &Sight, is_whole: bool) -> i32 {
    let first = is_backwards(outer.first_token_ns, inner.first_token_ns);
    let last = is_whole && outlasts(outer, inner);
    if first || last { BACKWARDS } else { 0 }
}

fn apart(outer: &Sight, inner: &Sight) -> u64 {
    let pairs =
        [(outer.first_token_ns, inner.first_token_ns), (outer.last_byte_out_ns, inner.last_byte_out_ns)];
    let distance = |(outer, inner): (Option<u64>, Option<u64>)| Some(outer?.abs_diff(inner?));
    let [first, last] = pairs.map(distance);
    let known = last.map(|last| last.max(first.unwrap_or_default()));
    known.unwrap_or(FAR_NS).min(FAR_NS)
}

#[cfg(test)]
mod tests;
