//! The Huffman code of HPACK (RFC 7541, appendix B), octet by octet.
//!
//! The code is canonical, so its lengths are all there is to it: codes of one length are consecutive numbers, in the
//! order of the symbols, and the first of each length follows from the shorter ones.

/// Code lengths of the symbols, the end-of-string symbol last.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11,
    10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8,
    15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5,
    6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23,
    23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21,
    23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25,
    26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26,
    28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];
const LONGEST: usize = 30;
/// The octet that is one whole symbol, `X`: what a masked string consists of.
pub(super) const MASKED: u8 = 0xfc;

/// The code, by length: the first code, how many there are, and where their symbols begin in `symbols`.
struct Code {
    first: [u32; LONGEST + 1],
    count: [u32; LONGEST + 1],
    begin: [usize; LONGEST + 1],
    symbols: [u16; 257],
}

static CODE: Code = code();

const fn code() -> Code {
    let mut code =
        Code { first: [0; LONGEST + 1], count: [0; LONGEST + 1], begin: [0; LONGEST + 1], symbols: [0; 257] };
    let (mut next, mut filled, mut len) = (0_u32, 0, 1);
    while len <= LONGEST {
        next <<= 1;
        code.first[len] = next;
        code.begin[len] = filled;
        let mut symbol = 0_u16;
        while symbol < 257 {
            if LENGTHS[symbol as usize] as usize == len {
                code.symbols[filled] = symbol;
                filled += 1;
                next += 1;
            }
            symbol += 1;
        }
        code.count[len] = next - code.first[len];
        len += 1;
    }
    code
}

/// What became of an octet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Octet {
    /// All of its symbols were taken.
    Taken,
    /// The taker stopped, or the string ends, behind this many of its bits.
    Stopped(u8),
}

/// The bits of a symbol that is not complete.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Symbols {
    bits: u32,
    len: u8,
}

impl Symbols {
    /// Hands the symbols that end in this octet to `take`, until it says no.
    pub(super) fn octet(&mut self, octet: u8, mut take: impl FnMut(u8) -> bool) -> Octet {
        for used in 1..=8 {
            self.bits = self.bits << 1 | u32::from(octet >> (8 - used) & 1);
            self.len += 1;
            let len = usize::from(self.len);
            let nth = self.bits.wrapping_sub(CODE.first[len]);
            if nth < CODE.count[len] {
                *self = Self::default();
                // The end-of-string symbol is none that may occur.
                let symbol = u8::try_from(CODE.symbols[CODE.begin[len] + nth as usize]);
                if !symbol.is_ok_and(&mut take) {
                    return Octet::Stopped(used);
                }
            }
        }
        Octet::Taken
    }
}

/// The octet with everything behind its first `used` bits made unreadable.
pub(super) fn cut(octet: u8, used: u8) -> u8 {
    octet | u8::MAX.checked_shr(u32::from(used)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(octets: &[u8]) -> String {
        let (mut symbols, mut text) = (Symbols::default(), String::new());
        for octet in octets {
            symbols.octet(*octet, |symbol| {
                text.push(char::from(symbol));
                true
            });
        }
        text
    }

    #[test]
    fn the_examples_of_the_standard() {
        for (octets, text) in [
            (
                &[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff][..],
                "www.example.com",
            ),
            (&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], "no-cache"),
            (&[0x64, 0x02], "302"),
            (
                &[
                    0xd0, 0x7a, 0xbe, 0x94, 0x10, 0x54, 0xd4, 0x44, 0xa8, 0x20, 0x05, 0x95, 0x04, 0x0b, 0x81,
                    0x66, 0xe0, 0x82, 0xa6, 0x2d, 0x1b, 0xff,
                ],
                "Mon, 21 Oct 2013 20:13:21 GMT",
            ),
        ] {
            assert_eq!(decode(octets), text);
        }
        assert_eq!(decode(&[MASKED; 3]), "XXX");
    }

    #[test]
    fn the_code_is_complete() {
        let sum: u64 = LENGTHS.iter().map(|len| 1 << (LONGEST - usize::from(*len))).sum();
        assert_eq!(sum, 1 << LONGEST);
    }

    #[test]
    fn an_octet_stops_where_its_taker_does() {
        // '0' and '1' are 00000 and 00001.
        let mut symbols = Symbols::default();
        assert_eq!(symbols.octet(0b0000_0000, |_| false), Octet::Stopped(5));
        assert_eq!(cut(0b0000_0000, 5), 0b0000_0111);
        assert_eq!(cut(0x41, 8), 0x41);
        // The end-of-string symbol stops.
        let mut symbols = Symbols::default();
        let stops: Vec<Octet> = [0xff; 4].map(|octet| symbols.octet(octet, |_| true)).into();
        assert_eq!(stops, [Octet::Taken, Octet::Taken, Octet::Taken, Octet::Stopped(6)]);
    }
}
