//! What a process holds within one context, by kind.

use serde::{Deserialize, Serialize};

use super::Place;

/// Kinds of memory that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Device memory allocated at once (`cuMemAlloc`, `cuMemAllocPitch`).
    Device,
    /// Device memory taken from pools in stream order, without what pools keep.
    Pool,
    /// Physical device memory with handles of its own (`cuMemCreate`), mapped or not.
    Vmm,
    /// Arrays; the size is what their elements take, the driver takes more.
    Array,
    /// Memory that moves between host and device: where it lies is not known.
    Managed,
    /// Memory of another process that this one can reach. The other process holds it.
    Imported,
    /// Host memory that the device can reach.
    Host,
}

impl Kind {
    /// All there are.
    pub const ALL: [Self; 7] =
        [Self::Device, Self::Pool, Self::Vmm, Self::Array, Self::Managed, Self::Imported, Self::Host];

    /// Whether it takes memory of the device for certain, for as long as this process wants.
    pub(super) const fn is_held(self) -> bool {
        matches!(self, Self::Device | Self::Vmm | Self::Array)
    }
}

/// Counts of calls. A call counts once, whatever its variant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Calls that allocated memory, of any kind.
    pub allocations: u64,
    /// Calls that gave memory back.
    pub frees: u64,
    /// Calls that should have allocated and did not.
    pub failures: u64,
    /// Frees of what was allocated before the agent watched, or is not kept.
    pub unknown_frees: u64,
    /// Frees that the driver refused, as of what is freed already.
    pub failed_frees: u64,
    /// Calls in stream order that went into a graph, and gave or freed nothing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub captured: u64,
    /// Addresses of other processes' memory of which the size is not known: their making was not seen.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unsized_imports: u64,
    /// Time in calls that allocate, ns.
    pub alloc_ns: u64,
    /// Time in calls that free, ns.
    pub free_ns: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Counts {
    pub(super) fn add(&mut self, other: &Self) {
        self.allocations += other.allocations;
        self.frees += other.frees;
        self.failures += other.failures;
        self.unknown_frees += other.unknown_frees;
        self.failed_frees += other.failed_frees;
        self.captured += other.captured;
        self.unsized_imports += other.unsized_imports;
        self.alloc_ns = self.alloc_ns.saturating_add(other.alloc_ns);
        self.free_ns = self.free_ns.saturating_add(other.free_ns);
    }
}

/// Sum of sizes that processes state, which may be any.
pub(super) fn total(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

/// One context of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    /// Its handle; 0 when it is not known.
    pub(super) context: u64,
    pub(super) counts: Counts,
    /// Where its memory is, as far as known.
    pub(super) place: Option<Place>,
    /// A pool gave what it may have kept, or have had to take from the device: asked for by place.
    pub(super) is_blurred: bool,
    /// Addresses reserved, which is no memory.
    pub(super) reserved_addresses: u64,
    live: [u64; Kind::ALL.len()],
    /// What pools hold, at most.
    pool_reserved: u64,
    /// Change of [`Book::held`] since it was last asked for.
    moved: i64,
}

impl Book {
    pub(super) fn new(context: u64) -> Self {
        Self { context, ..Self::default() }
    }

    pub(super) fn live(&self, kind: Kind) -> u64 {
        self.live[kind as usize]
    }

    /// Memory of the device that the context holds; of pools, the most that they can.
    pub(super) fn held(&self) -> u64 {
        let held = Kind::ALL.into_iter().filter(|kind| kind.is_held()).map(|kind| self.live(kind));
        total(held).saturating_add(self.pool_reserved)
    }

    /// What pools hold beyond what was taken from them, at most.
    pub(super) fn pool_cached(&self) -> u64 {
        self.pool_reserved.saturating_sub(self.live(Kind::Pool))
    }

    pub(super) fn add(&mut self, kind: Kind, bytes: u64) {
        self.live[kind as usize] = self.live[kind as usize].saturating_add(bytes);
        if kind.is_held() {
            self.moved = self.moved.saturating_add(signed(bytes));
        }
    }

    pub(super) fn sub(&mut self, kind: Kind, bytes: u64) {
        self.live[kind as usize] = self.live[kind as usize].saturating_sub(bytes);
        if kind.is_held() {
            self.moved = self.moved.saturating_sub(signed(bytes));
        }
    }

    /// A pool of the context holds another amount than before.
    pub(super) fn pool(&mut self, before: u64, after: u64) {
        self.pool_reserved = self.pool_reserved.saturating_add(after).saturating_sub(before);
        self.moved = self.moved.saturating_add(signed(after)).saturating_sub(signed(before));
    }

    /// By how much [`Book::held`] has changed since the last time.
    pub(super) fn take_moved(&mut self) -> i64 {
        std::mem::take(&mut self.moved)
    }

    /// The context is gone: so is all but physical memory, whose handles are the process's.
    pub(super) fn destroy(&mut self) {
        for kind in Kind::ALL.into_iter().filter(|kind| !matches!(kind, Kind::Vmm | Kind::Pool)) {
            self.sub(kind, self.live(kind));
        }
        self.live[Kind::Pool as usize] = 0;
        self.pool(self.pool_reserved, 0);
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
