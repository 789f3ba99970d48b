//! When the bytes of one read had arrived.

use wire::socket::Network;

use crate::request::record::Arrival;

/// Arrival of the bytes of the read that is being looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrivals {
    network: Network,
    /// When the read ended.
    read_ns: u64,
    /// Bytes of it that were looked at.
    position: u64,
}

impl Arrivals {
    /// Of a read that ended at `read_ns`.
    pub(super) fn new(network: Network, read_ns: u64) -> Self {
        Self { network, read_ns, position: 0 }
    }

    /// So many bytes of the read have been looked at, in all.
    pub(super) fn reach(&mut self, position: u64) {
        self.position = position;
    }

    /// So many more bytes.
    pub(super) fn advance(&mut self, len: u64) {
        self.position += len;
    }

    /// When the next byte arrived.
    pub(super) fn next(&self) -> (u64, Arrival) {
        self.at(self.position)
    }

    /// When the byte before it arrived.
    pub(super) fn last(&self) -> (u64, Arrival) {
        self.at(self.position.saturating_sub(1))
    }

    fn at(&self, byte: u64) -> (u64, Arrival) {
        let Network { first_ns, last_ns, first_len, last_from } = self.network;
        let (time_ns, source) = if first_ns != 0 && byte < u64::from(first_len) {
            (first_ns, Arrival::Wire)
        } else if last_ns == 0 {
            (self.read_ns, Arrival::Read)
        } else if byte >= u64::from(last_from) {
            (last_ns, Arrival::Wire)
        } else {
            (last_ns, Arrival::Bounded)
        };
        (time_ns.min(self.read_ns), source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_has_the_time_of_its_segment() {
        let network = Network { first_ns: 10, last_ns: 30, first_len: 5, last_from: 8 };
        let unknown_last = Network { last_ns: 0, last_from: 0, ..network };
        let unknown_first = Network { first_ns: 0, first_len: 0, ..network };
        let cases = [
            ("first segment", network, 0, (10, Arrival::Wire)),
            ("its last byte", network, 4, (10, Arrival::Wire)),
            ("between", network, 5, (30, Arrival::Bounded)),
            ("last segment", network, 8, (30, Arrival::Wire)),
            ("end not known", unknown_last, 5, (40, Arrival::Read)),
            ("beginning not known", unknown_first, 0, (30, Arrival::Bounded)),
            ("nothing known", Network::default(), 0, (40, Arrival::Read)),
            ("never after the read", Network { last_ns: 50, ..network }, 9, (40, Arrival::Wire)),
        ];
        for (name, network, byte, expected) in cases {
            let mut arrivals = Arrivals::new(network, 40);
            arrivals.reach(byte);
            assert_eq!(arrivals.next(), expected, "{name}");
            arrivals.advance(1);
            assert_eq!(arrivals.last(), expected, "{name}");
        }
    }
}
