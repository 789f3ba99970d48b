//! Header blocks (HPACK, RFC 7541): read and masked octet by octet, over any split and without keeping any.
//!
//! Why not by a crate: the maintained ones (`loona-hpack`, `httlib-huffman`, and the one inside `h2`) decode a whole,
//! unmasked block or string into new memory, against a table that they know from its beginning. Here a block is masked
//! where it lies as it passes, before its next octet is there; the table may begin anywhere, and what it lacks is
//! "unknown", not an error. `httlib-huffman` takes single octets, but does not say at which bit of one a symbol ends, and
//! that is where masking begins. The tests hold this reader against `loona-hpack` and `httlib-huffman`, and read what `h2`
//! writes.
//!
//! What is masked: every value but those of [`super::fields::NAMES`], and every name from the character on at which
//! it can no longer be one of those. A masked string keeps its octets' number: each becomes `x`, or in a Huffman-coded
//! string the octet that is one whole `X`. Lengths, indices and kept text stay, and nothing else is read. So a masked
//! block takes the reader the same way as the original, and masking it again changes nothing.

use super::{
    fields::{Block, Field, Keep, MAX_VALUE, NAMES},
    huffman::{self, Octet, Symbols},
    mask::{Narrow, mask_all},
    table::Table,
};

/// Octets of one header block that are read. Endless ones cost no memory, but are not worth the time.
const MAX_BLOCK: usize = 256 * 1024;
/// Most bits of an integer behind its first octet.
const MAX_SHIFT: u8 = 28;

/// What an integer is.
#[derive(Clone, Copy, Debug)]
enum Integer {
    /// Index of a whole field.
    Index,
    /// Index of a name; the field is to be inserted or not.
    Name(bool),
    /// New size of the table.
    Size,
    /// Length of a string.
    Length { name: bool, huffman: bool },
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// At a field.
    #[default]
    Field,
    /// Inside an integer.
    Integer { what: Integer, value: u32, shift: u8 },
    /// At the length of a name or a value.
    Length { name: bool },
    /// In a string.
    Text { name: bool, huffman: bool, left: u32 },
    /// What follows in this block can't be read.
    Bad,
}

/// Reads the header blocks of one direction of a connection.
#[derive(Debug, Default)]
pub(super) struct Reader {
    table: Table,
    block: Block,
    octets: usize,
    state: State,
    field: Field,
    insert: bool,
    text: Text,
}

impl Reader {
    /// Reads and masks the next octets of a block.
    pub(super) fn octets(&mut self, mut bytes: &mut [u8]) {
        self.octets = self.octets.saturating_add(bytes.len());
        if self.octets > MAX_BLOCK {
            self.bad();
        }
        while let Some(first) = bytes.first() {
            match self.state {
                State::Bad => return mask_all(bytes),
                State::Text { name, huffman, left } => {
                    let len = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    let (text, rest) = bytes.split_at_mut(len);
                    self.text.octets(text, huffman);
                    bytes = rest;
                    // Fits: not more than `left`.
                    self.in_text(name, huffman, left - u32::try_from(len).unwrap_or(left));
                }
                _ => {
                    self.step(*first);
                    bytes = &mut bytes[1..];
                }
            }
        }
    }

    /// Bytes held.
    pub(super) fn held(&self) -> usize {
        self.table.held() + self.text.kept.capacity() + self.block.held()
    }

    /// The block is over.
    pub(super) fn end(&mut self) -> Block {
        if !matches!(self.state, State::Field) {
            self.bad();
        }
        if self.block.bad {
            self.table.clear();
        }
        self.state = State::Field;
        self.octets = 0;
        std::mem::take(&mut self.block)
    }

    /// Octets of this block, or whole blocks, are missing.
    pub(super) fn lose(&mut self) {
        self.bad();
        self.table.clear();
        self.text = Text::default();
    }

    fn bad(&mut self) {
        self.block.bad = true;
        self.state = State::Bad;
    }

    fn step(&mut self, octet: u8) {
        match self.state {
            State::Field => match octet {
                0x80.. => self.prefix(Integer::Index, octet, 0x7f),
                0x40.. => self.prefix(Integer::Name(true), octet, 0x3f),
                0x20.. => self.prefix(Integer::Size, octet, 0x1f),
                _ => self.prefix(Integer::Name(false), octet, 0x0f),
            },
            State::Length { name } => {
                self.prefix(Integer::Length { name, huffman: octet & 0x80 != 0 }, octet, 0x7f);
            }
            State::Integer { what, value, shift } => self.integer(what, value, shift, octet),
            State::Text { .. } | State::Bad => {}
        }
    }

    fn prefix(&mut self, what: Integer, octet: u8, mask: u8) {
        let value = octet & mask;
        if value == mask {
            self.state = State::Integer { what, value: value.into(), shift: 0 };
        } else {
            self.number(what, value.into());
        }
    }

    fn integer(&mut self, what: Integer, value: u32, shift: u8, octet: u8) {
        let more = u64::from(octet & 0x7f) << shift;
        match u32::try_from(u64::from(value) + more) {
            Ok(value) if octet & 0x80 == 0 => self.number(what, value),
            Ok(value) if shift < MAX_SHIFT => {
                self.state = State::Integer { what, value, shift: shift + 7 };
            }
            _ => self.bad(),
        }
    }

    fn number(&mut self, what: Integer, value: u32) {
        self.state = match what {
            Integer::Index if value == 0 => return self.bad(),
            Integer::Index => {
                let (field, value) = self.table.get(value);
                self.block.add(field, value);
                State::Field
            }
            Integer::Name(insert) => {
                self.insert = insert;
                if value > 0 {
                    self.field = self.table.get(value).0;
                }
                State::Length { name: value == 0 }
            }
            Integer::Size => State::Field,
            Integer::Length { name, huffman } => {
                self.text.begin(if name { None } else { Some(self.field) });
                return self.in_text(name, huffman, value);
            }
        };
    }

    /// So many octets of a string are left.
    fn in_text(&mut self, name: bool, huffman: bool, left: u32) {
        self.state = match (left, name) {
            (1.., _) => State::Text { name, huffman, left },
            (0, true) => {
                self.field = self.text.name();
                State::Length { name: false }
            }
            (0, false) => {
                let value = self.text.value();
                self.block.add(self.field, value);
                if self.insert {
                    let value = value.map(Into::into);
                    self.table.insert(self.field, value);
                }
                State::Field
            }
        };
    }
}

/// Reads a string as far as it matters, and masks the rest.
#[derive(Debug)]
struct Text {
    /// Of a value; `None` in a name.
    field: Option<Field>,
    name: Narrow,
    kept: Vec<u8>,
    symbols: Symbols,
    /// What follows is masked.
    stopped: bool,
    /// It is not known what it says.
    unknown: bool,
}

impl Default for Text {
    fn default() -> Self {
        Self {
            field: None,
            name: Narrow::new(NAMES),
            kept: Vec::new(),
            symbols: Symbols::default(),
            stopped: false,
            unknown: false,
        }
    }
}

impl Text {
    fn begin(&mut self, field: Option<Field>) {
        self.field = field;
        self.name = Narrow::new(NAMES);
        self.kept.clear();
        self.symbols = Symbols::default();
        self.unknown = field.is_some_and(|field| !field.is_kept());
        self.stopped = self.unknown;
    }

    fn octets(&mut self, bytes: &mut [u8], huffman: bool) {
        let mut at = 0;
        while at < bytes.len() && !self.stopped {
            if huffman {
                let mut symbols = self.symbols;
                let octet = symbols.octet(bytes[at], |symbol| self.symbol(symbol));
                self.symbols = symbols;
                if let Octet::Stopped(used) = octet {
                    // The taker did not stop when the code itself ended the string.
                    self.unknown |= !self.stopped;
                    self.stopped = true;
                    bytes[at] = huffman::cut(bytes[at], used);
                }
            } else {
                self.symbol(bytes[at]);
            }
            at += 1;
        }
        bytes[at..].fill(if huffman { huffman::MASKED } else { b'x' });
    }

    /// Takes a character; false when the rest does not matter.
    fn symbol(&mut self, symbol: u8) -> bool {
        let keep = match self.field {
            None if self.name.push(NAMES, symbol) => Keep::Yes,
            None => Keep::End,
            // Longer than any path that is told.
            Some(Field::Path) if self.kept.len() == MAX_VALUE => Keep::End,
            Some(_) if self.kept.len() == MAX_VALUE => Keep::Bad,
            Some(field) => field.keeps(symbol),
        };
        match keep {
            Keep::Yes if self.field.is_some() => self.kept.push(symbol),
            Keep::Yes => {}
            Keep::End => self.stopped = true,
            Keep::Bad => (self.stopped, self.unknown) = (true, true),
        }
        !self.stopped
    }

    fn name(&self) -> Field {
        if self.stopped { Field::Other } else { Field::named(self.name) }
    }

    fn value(&self) -> Option<&[u8]> {
        (!self.unknown).then_some(&self.kept[..])
    }
}

#[cfg(test)]
mod tests;
