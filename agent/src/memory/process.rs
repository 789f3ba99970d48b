//! One process's ledger: what each memory call does to it.

mod change;

use std::collections::{BTreeMap, VecDeque};

use wire::{
    cookie::Class,
    memory::{CALL_CAPTURED, CALL_WHOLE, Call, PLACE_DEVICE},
};

use super::{
    Place,
    blocks::{Block, Blocks, Freed},
    book::{Book, Kind},
    displaced::Displaced,
    here::Here,
    physical::Physical,
    pool::{Change, Pools},
    storm::Storms,
};

/// Contexts told apart of one process; those beyond count as the first.
const MAX_BOOKS: usize = 64;
/// Attempts remembered for "lately".
const LATELY: usize = 256;
/// How long ago lately is.
const LATELY_NS: u64 = 60_000_000_000;
const SUCCESS: u32 = 0;

/// What a call came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It allocated.
    Allocated(Kind, u64),
    /// It gave memory back.
    Freed(u64),
    /// It should have allocated so much and did not.
    Failed(Kind, u64),
    /// It made a handle for a block of so many bytes.
    Exported(u64),
    /// Neither.
    None,
}

/// What is known beside a process's own ledger.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside {
    /// All processes together have fewer blocks than are kept.
    pub(super) has_room: bool,
    /// Bytes of the block that another process's handle stands for.
    pub(super) exported: Option<u64>,
}

/// Everything known of a process's memory.
#[derive(Debug, Default)]
pub(super) struct Process {
    /// Tells it from a later one with the same id; 0 while not known.
    pub(super) start_ticks: u64,
    pub(super) comm: String,
    /// When its last call returned.
    pub(super) last_ns: u64,
    /// What happened on each device.
    pub(super) here: BTreeMap<Place, Here>,
    pub(super) books: Vec<Book>,
    pub(super) blocks: Blocks,
    pub(super) physical: Physical,
    pub(super) storms: Storms,
    /// Not all of its calls were seen.
    pub(super) is_partial: bool,
    /// Some of what it holds was not kept, since there was too much.
    pub(super) is_capped: bool,
    displaced: Displaced,
    pools: Pools,
    /// Primary contexts by device, as CUDA numbers them.
    primary: BTreeMap<i32, u64>,
    /// Time, bytes and success of attempts, oldest first.
    lately: VecDeque<(u64, u64, bool)>,
}

impl Process {
    /// Takes a call.
    pub(super) fn apply(&mut self, call: &Call, beside: Beside) -> Effect {
        self.is_partial |= call.flags & CALL_WHOLE == 0;
        let book = self.book(call.context);
        let Some(class) = Class::from_u8(call.class) else { return Effect::None };
        if call.flags & CALL_CAPTURED != 0 {
            self.at(book).counts.captured += 1;
            return Effect::None;
        }
        let effect = match class {
            class if allocates(class).is_some() => self.allocate(call, class, book, beside.has_room),
            class if frees(class) => self.free(call, class),
            _ => self.change(call, class, book, beside),
        };
        self.count(call, class, book, effect);
        effect
    }

    /// Blocks, pieces and mappings that are kept.
    pub(super) fn kept(&self) -> usize {
        self.blocks.len() + self.physical.len()
    }

    /// Place of a context's book.
    pub(super) fn book(&mut self, context: u64) -> u16 {
        let at = self.books.iter().position(|book| book.context == context).unwrap_or_else(|| {
            if self.books.len() >= MAX_BOOKS {
                return 0;
            }
            self.books.push(Book::new(context));
            self.books.len() - 1
        });
        u16::try_from(at).unwrap_or_default()
    }

    fn at(&mut self, book: u16) -> &mut Book {
        if self.books.is_empty() {
            self.books.push(Book::default());
        }
        let last = self.books.len() - 1;
        &mut self.books[usize::from(book).min(last)]
    }

    fn allocate(&mut self, call: &Call, class: Class, book: u16, has_room: bool) -> Effect {
        let Some(kind) = allocates(class).map(|kind| place(kind, class, call)) else { return Effect::None };
        if call.result != SUCCESS {
            return Effect::Failed(kind, call.bytes);
        }
        if class == Class::CreatePhysical {
            // One that is not kept is known as a sum: it is never taken off again.
            let is_kept = has_room && self.physical.create(call.address, call.bytes, book, kind);
            self.is_capped |= !is_kept;
            self.at(book).add(kind, call.bytes);
        } else {
            self.insert(call, kind, class, book, has_room);
        }
        Effect::Allocated(kind, call.bytes)
    }

    fn insert(&mut self, call: &Call, kind: Kind, class: Class, book: u16, has_room: bool) {
        let mut block = Block { bytes: call.bytes, book, pool: 0, kind };
        if kind == Kind::Pool {
            let handle = if class == Class::AllocPool { call.other } else { 0 };
            let (at, owner, change) = self.pools.take(handle, self.pool_book(book), call.bytes);
            // It counts with the context of the pool, whichever took it.
            (block.pool, block.book) = (at, owner);
            self.pool_changed(owner, change);
            self.at(owner).is_blurred |= change.1 - change.0 < call.bytes;
        }
        self.at(block.book).add(kind, call.bytes);
        if let Some(older) = self.blocks.insert(key(call.address, class), block, has_room)
            && let Some(lost) = self.displaced.put(key(call.address, class), call.header.time_ns, older)
        {
            // Its free was not seen: the address cannot be given twice.
            self.is_partial = true;
            self.drop_block(lost);
        }
        self.is_capped |= self.blocks.is_capped();
    }

    fn drop_block(&mut self, block: Block) {
        self.at(block.book).sub(block.kind, block.bytes);
        if block.kind == Kind::Pool {
            let change = self.pools.give(block.pool, block.bytes);
            self.pool_changed(block.book, change);
        }
    }

    /// Place of the context that a device's own pool counts with: every context of the device has the same one.
    fn pool_book(&self, book: u16) -> u16 {
        let of = |at: u16| self.books.get(usize::from(at)).and_then(|book| book.place);
        let Some(place @ Place::Device(_)) = of(book) else { return book };
        let first = self.books.iter().position(|book| book.place == Some(place));
        first.and_then(|at| u16::try_from(at).ok()).unwrap_or(book)
    }

    fn pool_changed(&mut self, book: u16, (before, after): Change) {
        self.at(book).pool(before, after);
    }

    fn free(&mut self, call: &Call, class: Class) -> Effect {
        let book = self.book(call.context);
        if call.result != SUCCESS {
            self.at(book).counts.failed_frees += 1;
            return Effect::None;
        }
        if call.address == 0 {
            return Effect::None;
        }
        if class == Class::ReleasePhysical {
            return self.release(call, book);
        }
        if let Some(block) = self.displaced.take(key(call.address, class), call.enter_ns) {
            self.drop_block(block);
            return Effect::Freed(block.bytes);
        }
        match self.blocks.remove(key(call.address, class), |kind| kind != Kind::Imported) {
            Freed::Block(block) | Freed::Unkept(block) => {
                self.drop_block(block);
                // Memory of another process goes back to nobody by that.
                Effect::Freed(if block.kind == Kind::Imported { 0 } else { block.bytes })
            }
            Freed::Unknown => {
                self.at(book).counts.unknown_frees += 1;
                Effect::Freed(0)
            }
        }
    }

    fn release(&mut self, call: &Call, book: u16) -> Effect {
        match self.physical.release(call.address) {
            None => {
                self.at(book).counts.unknown_frees += 1;
                Effect::Freed(0)
            }
            Some(None) => Effect::Freed(0),
            Some(Some(piece)) => Effect::Freed(self.ended(piece)),
        }
    }

    /// Physical memory that nothing holds any more: its size, if it was this process's own.
    fn ended(&mut self, piece: super::physical::Piece) -> u64 {
        self.at(piece.book).sub(piece.kind, piece.bytes);
        if piece.kind == Kind::Imported { 0 } else { piece.bytes }
    }

    fn count(&mut self, call: &Call, class: Class, book: u16, effect: Effect) {
        let took = call.header.time_ns.saturating_sub(call.enter_ns);
        let counts = &mut self.at(book).counts;
        if allocates(class).is_some() {
            counts.alloc_ns = counts.alloc_ns.saturating_add(took);
        } else if frees(class) {
            counts.free_ns = counts.free_ns.saturating_add(took);
            counts.frees += u64::from(matches!(effect, Effect::Freed(_)));
        }
        match effect {
            Effect::Allocated(_, bytes) => {
                counts.allocations += 1;
                self.remember(call.header.time_ns, bytes, true);
            }
            Effect::Failed(_, bytes) => {
                counts.failures += 1;
                self.remember(call.header.time_ns, bytes, false);
            }
            Effect::Freed(_) | Effect::Exported(_) | Effect::None => {}
        }
    }

    fn remember(&mut self, at_ns: u64, bytes: u64, succeeded: bool) {
        if self.lately.len() >= LATELY {
            self.lately.pop_front();
        }
        self.lately.push_back((at_ns, bytes, succeeded));
    }

    /// The largest attempt that succeeded, and the smallest that failed, within a minute before.
    pub(super) fn lately(&self, at_ns: u64) -> (Option<u64>, Option<u64>) {
        let recent =
            || self.lately.iter().filter(|(t, ..)| t.saturating_add(LATELY_NS) >= at_ns && *t <= at_ns);
        let of =
            |succeeded: bool| recent().filter(move |(.., s)| *s == succeeded).map(|(_, bytes, _)| *bytes);
        (of(true).max(), of(false).min())
    }

    /// Which context is the primary one of a device.
    pub(super) fn has_primary(&mut self, device: i32, context: u64) {
        if self.primary.len() < MAX_BOOKS {
            self.primary.insert(device, context);
        }
    }

    /// The primary context of a device was reset.
    pub(super) fn reset(&mut self, device: i32) {
        if let Some(context) = self.primary.get(&device).copied() {
            self.destroy_context(context);
        }
    }

    /// A context was destroyed, and with it what was allocated in it.
    pub(super) fn destroy_context(&mut self, context: u64) {
        let Some(at) = self.books.iter().position(|book| book.context == context) else { return };
        let place = u16::try_from(at).unwrap_or_default();
        self.blocks.remove_book(place);
        self.displaced.remove_book(place);
        self.pools.remove_book(place);
        self.books[at].destroy();
    }
}

/// What a block is known by. Host memory that is registered can be known by its address already.
const fn key(address: u64, class: Class) -> u64 {
    const REGISTERED: u64 = 1 << 63;
    match class {
        Class::RegisterHost | Class::UnregisterHost => address | REGISTERED,
        _ => address,
    }
}

/// What a class allocates.
pub const fn allocates(class: Class) -> Option<Kind> {
    Some(match class {
        Class::Alloc | Class::AllocPitch => Kind::Device,
        Class::AllocAsync | Class::AllocPool => Kind::Pool,
        Class::CreatePhysical => Kind::Vmm,
        Class::AllocArray | Class::AllocArray3D | Class::AllocMipmap => Kind::Array,
        Class::AllocManaged => Kind::Managed,
        Class::AllocHost | Class::RegisterHost => Kind::Host,
        _ => return None,
    })
}

/// Physical memory may be of the host too.
fn place(kind: Kind, class: Class, call: &Call) -> Kind {
    let is_elsewhere =
        class == Class::CreatePhysical && call.other & u64::from(u32::MAX) != u64::from(PLACE_DEVICE);
    if is_elsewhere { Kind::Host } else { kind }
}

/// Whether a class gives memory back.
pub(super) const fn frees(class: Class) -> bool {
    matches!(
        class,
        Class::Free
            | Class::FreeAsync
            | Class::FreeArray
            | Class::FreeHost
            | Class::UnregisterHost
            | Class::ReleasePhysical
    )
}
