//! Server-sent events, as they come.

/// Collects lines into events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
}

impl Events {
    /// Takes in bytes and calls `event` with the data of each event that is complete.
    pub(crate) fn push(&mut self, bytes: &[u8], mut event: impl FnMut(&[u8])) {
        for piece in bytes.split_inclusive(|&b| b == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                self.end_line(line.trim_ascii_end(), &mut event);
            }
        }
    }

    fn end_line(&mut self, line: &[u8], event: &mut impl FnMut(&[u8])) {
        if line.is_empty() {
            if std::mem::take(&mut self.has_data) {
                event(&std::mem::take(&mut self.data));
            }
        } else if let Some(value) = line.strip_prefix(b"data:") {
            // Several data lines make one event; other fields and comments carry nothing for us.
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_split_gives_the_same() {
        let text = b": ping\r\n\r\ndata: one\n\nevent: x\r\nid: 3\r\ndata: two\r\ndata:lines\r\n\r\ndata:\n\ndata: never ended\n";
        for size in 1..=text.len() {
            let (mut events, mut got) = (Events::default(), Vec::new());
            for piece in text.chunks(size) {
                events.push(piece, |data| got.push(String::from_utf8(data.to_vec()).unwrap()));
            }
            assert_eq!(got, ["one", "two\nlines", ""], "{size}");
        }
    }
}
