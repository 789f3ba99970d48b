//! How links are proven, used, and cut.

use wire::{
    Header,
    socket::{self, DIR_RECV, DIR_SEND, SockId},
    tls,
};

use super::{
    Chunk, Connection, Links, MAX_HELD, MAX_UNLINKED, MAX_WAITING, PATIENCE_NS, Socket, Ssl, SslKey, verdict,
};

/// Nothing known of a socket.
const NOBODY: SockId = SockId { sock: 0, birth_ns: 0 };

impl Links {
    /// The library used this socket within its own call.
    pub(super) fn prove_by_nesting(
        &mut self,
        key: SslKey,
        id: SockId,
        header: &Header,
        out: &mut Vec<Vec<u8>>,
    ) {
        if self.ssls.get(&key).is_some_and(|ssl| ssl.sock == Some(id)) {
            return;
        }
        // A connection that did not look like TLS when it was first seen carries it all the same.
        if let Some(socket @ (Socket::New { .. } | Socket::Clear)) = self.sockets.get_mut(&id) {
            let connection = Connection::new(id, false, true);
            out.push(connection.verdict(tls::SEEN, header));
            *socket = Socket::Tls(Box::new(connection));
        }
        self.cut(key, header, out);
        if let Some(other) = self.connection(id).and_then(|connection| connection.ssl) {
            self.cut(other, header, out);
        }
        self.link(key, id, header, out);
    }

    /// The thread wrote to a connection that nobody is known to use: plaintext of one that has no connection may be in
    /// what it wrote. Only if it can be no other's.
    pub(super) fn prove_by_write(&mut self, data: &socket::Data, out: &mut Vec<Vec<u8>>) {
        let (tgid, tid) = (data.header.tgid, data.header.tid);
        let Some(Socket::Tls(connection)) = self.sockets.get(&data.id) else { return };
        let fits = |key: &&SslKey| {
            let ssl = (key.0 == tgid).then(|| self.ssls.get(key)).flatten().filter(|ssl| ssl.tid == tid);
            ssl.and_then(|ssl| ssl.waiting.front()).is_some_and(|chunk| connection.may_hold(chunk, DIR_SEND))
        };
        let mut fitting = self.unlinked.iter().filter(fits);
        if let (Some(&key), None) = (fitting.next(), fitting.next()) {
            self.link(key, data.id, &data.header, out);
            self.write_on(key, &data.header, out);
        }
    }

    fn link(&mut self, key: SslKey, id: SockId, header: &Header, out: &mut Vec<Vec<u8>>) {
        let Some(connection) = self.connection(id) else { return };
        connection.ssl = Some(key);
        out.push(connection.verdict(tls::LINKED, header));
        if let Some(ssl) = self.ssls.get_mut(&key) {
            ssl.sock = Some(id);
        }
        self.unlinked.retain(|unlinked| *unlinked != key);
        self.unread.retain(|unread| *unread != id);
    }

    /// The link of this one, if it has one, is wrong.
    fn cut(&mut self, key: SslKey, header: &Header, out: &mut Vec<Vec<u8>>) {
        let Some(id) = self.ssls.get_mut(&key).and_then(|ssl| ssl.sock.take()) else { return };
        if let Some(connection) = self.connection(id).filter(|connection| connection.ssl == Some(key)) {
            connection.unlink();
            out.push(connection.verdict(tls::CONTRADICTED, header));
        }
        self.wait_unlinked(key, header, out);
    }

    /// Calls that sent some of what this one wrote were not seen. Which of it is not known, and what went in later may be
    /// as long: none of it waits any longer.
    pub(super) fn lost(&mut self, key: SslKey, header: &Header, out: &mut Vec<Vec<u8>>) {
        if self.ssls.get(&key).is_some_and(|ssl| !ssl.waiting.is_empty()) {
            self.drop_waiting(key, header, out);
            self.cut(key, header, out);
        }
    }

    /// If something of it waits, it waits for a connection.
    pub(super) fn wait_unlinked(&mut self, key: SslKey, header: &Header, out: &mut Vec<Vec<u8>>) {
        let waits = self.ssls.get(&key).is_some_and(|ssl| !ssl.waiting.is_empty());
        if !waits || self.unlinked.contains(&key) {
            return;
        }
        if self.unlinked.len() == MAX_UNLINKED
            && let Some(oldest) = self.unlinked.pop_front()
        {
            self.drop_waiting(oldest, header, out);
        }
        self.unlinked.push_back(key);
    }

    /// Plaintext came out.
    pub(super) fn read(&mut self, key: SslKey, chunk: &Chunk, data: &tls::Data, out: &mut Vec<Vec<u8>>) {
        let header = &data.header;
        if let Some(id) = self.ssls.get(&key).and_then(|ssl| ssl.sock) {
            match self.read_from(id, chunk, data.requested, header, out) {
                Some(record) => return out.push(record),
                None => self.cut(key, header, out),
            }
        }
        if self.prove_by_read(key, chunk, data, out) {
            return self.write_on(key, header, out);
        }
        out.push(verdict(NOBODY, tls::UNLINKED, chunk.len.into(), header));
    }

    /// The thread read a record of exactly this length from a connection that nobody is known to use.
    fn prove_by_read(
        &mut self,
        key: SslKey,
        chunk: &Chunk,
        data: &tls::Data,
        out: &mut Vec<Vec<u8>>,
    ) -> bool {
        let Some(id) = self.only_reader(key, chunk, &data.header) else { return false };
        let record = self.connection(id).and_then(|connection| connection.read(chunk, data.requested));
        let Some(record) = record else { return false };
        self.link(key, id, &data.header, out);
        out.push(record);
        true
    }

    /// The connection that it shook hands on, or else the only one that it can be.
    fn only_reader(&self, key: SslKey, chunk: &Chunk, reader: &Header) -> Option<SockId> {
        let fits = |id: &SockId| match self.sockets.get(id) {
            Some(Socket::Tls(connection)) => {
                connection.ssl.is_none()
                    && connection.is_read_by(reader)
                    && connection.may_hold(chunk, DIR_RECV)
            }
            _ => false,
        };
        if let Some(shook) = self.ssls.get(&key).and_then(|ssl| ssl.shook)
            && fits(&shook)
        {
            return Some(shook);
        }
        if self.crowded.get(&reader.tid).is_some() {
            return None;
        }
        let mut fitting = self.unread.iter().copied().filter(fits);
        fitting.next().filter(|_| fitting.next().is_none())
    }

    /// From the connection that it is linked to; `None` if that cannot be.
    fn read_from(
        &mut self,
        id: SockId,
        chunk: &Chunk,
        requested: u32,
        header: &Header,
        out: &mut Vec<Vec<u8>>,
    ) -> Option<Vec<u8>> {
        let connection = self.connection(id)?;
        let record = connection.read(chunk, requested);
        if record.is_some() || !connection.is_lost(DIR_RECV) {
            return record;
        }
        if connection.becomes_unframed() {
            out.push(connection.verdict(tls::UNFRAMED, header));
        }
        connection.read_unframed(chunk)
    }

    /// Plaintext went in.
    pub(super) fn wrote(&mut self, key: SslKey, chunk: Chunk, header: &Header, out: &mut Vec<Vec<u8>>) {
        self.held += chunk.held();
        let sock = self.ssls.get(&key).and_then(|ssl| ssl.sock);
        if let Some(connection) = sock.filter(|_| !chunk.nested).and_then(|id| self.connection(id)) {
            connection.writes_later();
        }
        let Some(ssl) = self.ssls.get_mut(&key) else { return };
        ssl.waiting.push_back(chunk);
        while self.waits_too_much(key) {
            self.drop_oldest(key, header, out);
        }
        if sock.is_some() {
            self.write_on(key, header, out);
        } else {
            self.wait_unlinked(key, header, out);
        }
    }

    /// What a linked one wrote may have gone out.
    pub(super) fn write_on(&mut self, key: SslKey, header: &Header, out: &mut Vec<Vec<u8>>) {
        while let Some(mut chunk) = self.ssls.get_mut(&key).and_then(|ssl| ssl.waiting.pop_front()) {
            let Some(id) = self.ssls.get(&key).and_then(|ssl| ssl.sock) else {
                return self.put_back(key, chunk);
            };
            let goes_on = self.write_to(id, &mut chunk, header, out);
            if chunk.left() == 0 {
                self.held -= chunk.held();
                continue;
            }
            self.put_back(key, chunk);
            if !goes_on {
                self.cut(key, header, out);
            }
            return;
        }
    }

    /// To the connection that it is linked to; whether what is left of it may still go there.
    fn write_to(&mut self, id: SockId, chunk: &mut Chunk, header: &Header, out: &mut Vec<Vec<u8>>) -> bool {
        let Some(connection) = self.connection(id) else { return false };
        let goes_on = connection.write(chunk, out);
        let is_lost = connection.is_lost(DIR_SEND);
        if chunk.left() == 0 || !(chunk.nested || (is_lost && !goes_on)) {
            return goes_on;
        }
        if is_lost && connection.becomes_unframed() {
            out.push(connection.verdict(tls::UNFRAMED, header));
        }
        connection.write_unframed(chunk, out);
        true
    }

    fn put_back(&mut self, key: SslKey, chunk: Chunk) {
        if let Some(ssl) = self.ssls.get_mut(&key) {
            ssl.waiting.push_front(chunk);
        }
    }

    fn waits_too_much(&self, key: SslKey) -> bool {
        let waiting = self.ssls.get(&key).map_or(0, |ssl| ssl.waiting.len());
        waiting > MAX_WAITING || (self.held > MAX_HELD && waiting > 0)
    }

    /// Nothing of this one waits any longer.
    pub(super) fn drop_waiting(&mut self, key: SslKey, header: &Header, out: &mut Vec<Vec<u8>>) {
        while self.ssls.get(&key).is_some_and(|ssl| !ssl.waiting.is_empty()) {
            self.drop_oldest(key, header, out);
        }
    }

    /// What was known of a library's connection is not any more.
    pub(super) fn let_go(&mut self, ssl: Ssl, header: &Header, out: &mut Vec<Vec<u8>>) {
        if let Some(connection) = ssl.sock.and_then(|id| self.connection(id)) {
            connection.unlink();
        }
        for chunk in ssl.waiting {
            self.held -= chunk.held();
            out.push(verdict(NOBODY, tls::UNLINKED, chunk.left().into(), header));
        }
    }

    fn drop_oldest(&mut self, key: SslKey, header: &Header, out: &mut Vec<Vec<u8>>) {
        if let Some(chunk) = self.ssls.get_mut(&key).and_then(|ssl| ssl.waiting.pop_front()) {
            self.held -= chunk.held();
            out.push(verdict(NOBODY, tls::UNLINKED, chunk.left().into(), header));
        }
    }

    /// Drops what has waited too long for a connection.
    pub(super) fn expire(&mut self, now: &Header, out: &mut Vec<Vec<u8>>) {
        let late = |ssl: &Ssl| {
            ssl.waiting.front().is_some_and(|chunk| chunk.time_ns.saturating_add(PATIENCE_NS) < now.time_ns)
        };
        for key in std::mem::take(&mut self.unlinked) {
            while self.ssls.get(&key).is_some_and(late) {
                let header = Header { tgid: key.0, ..*now };
                self.drop_oldest(key, &header, out);
            }
            if self.ssls.get(&key).is_some_and(|ssl| !ssl.waiting.is_empty()) {
                self.unlinked.push_back(key);
            }
        }
    }
}
