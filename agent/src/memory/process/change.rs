//! Calls that neither allocate nor free by themselves: mappings, handles, memory of other processes, pools.

use wire::{cookie::Class, memory::Call};

use super::{super::book::total, Beside, Block, Effect, Freed, Kind, Process, SUCCESS};

impl Process {
    /// Calls that neither allocate nor free by themselves.
    pub(super) fn change(&mut self, call: &Call, class: Class, book: u16, beside: Beside) -> Effect {
        if call.result != SUCCESS {
            return Effect::None;
        }
        match class {
            Class::RetainPhysical => {
                self.physical.retain(call.address, call.other);
            }
            Class::ImportPhysical => {
                let is_kept = beside.has_room && self.physical.create(call.address, 0, book, Kind::Imported);
                self.is_capped |= !is_kept;
            }
            Class::MapRange => {
                let mapped = self.physical.map(call.address, call.bytes, call.other, beside.has_room);
                if let Some((piece, more)) = mapped {
                    self.at(piece.book).add(Kind::Imported, more);
                }
                self.is_capped |= !beside.has_room;
            }
            Class::UnmapRange => return self.unmap(call),
            Class::ReserveRange => {
                let book = self.at(book);
                book.reserved_addresses = book.reserved_addresses.saturating_add(call.bytes);
            }
            Class::FreeRange => {
                let book = self.at(book);
                book.reserved_addresses = book.reserved_addresses.saturating_sub(call.bytes);
            }
            Class::ExportAddress => {
                let block = self.blocks.get(call.address).filter(|_| call.other != 0);
                return block.map_or(Effect::None, |block| Effect::Exported(block.bytes));
            }
            Class::ImportAddress => self.import(call, book, beside),
            Class::CloseImport => {
                let closed = self.blocks.remove(call.address, |kind| kind == Kind::Imported);
                if let Freed::Block(block) | Freed::Unkept(block) = closed {
                    self.drop_block(block);
                }
            }
            _ => return self.pool(call, class, book),
        }
        Effect::None
    }

    /// An address for memory of another process: as large as that said, if it was watched.
    fn import(&mut self, call: &Call, book: u16, beside: Beside) {
        let bytes = beside.exported.unwrap_or(0);
        self.at(book).counts.unsized_imports += u64::from(beside.exported.is_none());
        self.at(book).add(Kind::Imported, bytes);
        let block = Block { bytes, book, pool: 0, kind: Kind::Imported };
        // The same memory opened once more has the same address: it is there once.
        if let Some(same) = self.blocks.insert(call.address, block, beside.has_room) {
            self.drop_block(same);
        }
        self.is_capped |= self.blocks.is_capped();
    }

    fn unmap(&mut self, call: &Call) -> Effect {
        let gone = self.physical.unmap(call.address, call.bytes);
        let bytes = total(gone.into_iter().map(|piece| self.ended(piece)));
        if bytes > 0 { Effect::Freed(bytes) } else { Effect::None }
    }

    fn pool(&mut self, call: &Call, class: Class, book: u16) -> Effect {
        if class == Class::CreatePool {
            self.pools.create(call.address, book);
            return Effect::None;
        }
        let book = self.pool_book(book);
        let (at, change) = match class {
            Class::TrimPool => self.pools.trim(call.address, book, call.bytes),
            Class::DestroyPool => self.pools.destroy(call.address, book),
            Class::GetPool => match self.pools.told(call.address, book, call.other, call.bytes) {
                Some(told) => told,
                None => return Effect::None,
            },
            _ => return Effect::None,
        };
        self.pool_changed(at, change);
        let (before, after) = change;
        if class == Class::TrimPool && after < before { Effect::Freed(before - after) } else { Effect::None }
    }
}
