//! Listening sockets from `/proc/PID/net/tcp` and `tcp6`.

use std::io::{self, BufRead};

/// State of a listening socket in these files.
const LISTEN: &str = "0A";
/// Most listening sockets taken from one file.
const MAX_LISTENERS: usize = 16_384;

/// A listening TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listener {
    /// Inode of the socket, as `/proc/PID/fd` names it.
    pub inode: u64,
    /// Local port.
    pub port: u16,
}

/// Appends the listening sockets. The kernel lists them before all others, so reading ends at the first other one:
/// a namespace with 100,000 connections costs no more than one with none.
pub fn listeners(reader: &mut impl BufRead, out: &mut Vec<Listener>) -> io::Result<()> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    for _ in 0..MAX_LISTENERS {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            break;
        }
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        if fields.get(3) != Some(&LISTEN) {
            break;
        }
        out.extend(listener(&fields));
    }
    Ok(())
}

fn listener(fields: &[&str]) -> Option<Listener> {
    let (_, port) = fields.get(1)?.rsplit_once(':')?;
    Some(Listener { inode: fields.get(9)?.parse().ok()?, port: u16::from_str_radix(port, 16).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode\n";

    fn read(body: &str) -> Vec<Listener> {
        let mut out = Vec::new();
        listeners(&mut format!("{HEAD}{body}").as_bytes(), &mut out).unwrap();
        out
    }

    #[test]
    fn both_families_are_read_up_to_the_first_connection() {
        let v4 = "   0: 0100007F:24C6 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1 0\n";
        let v6 = "   1: 00000000000000000000000000000000:1F40 00000000000000000000000000000000:0000 0A \
                  00000000:00000000 00:00000000 00000000     0        0 78 1 0\n";
        let connected = "   2: 0100007F:24C6 0100007F:8000 01 00000000:00000000 00:00000000 00000000     0        0 79 1 0\n";
        let expected = [Listener { inode: 77, port: 9414 }, Listener { inode: 78, port: 8000 }];
        assert_eq!(read(&format!("{v4}{v6}{connected}{v4}")), expected);
    }

    #[test]
    fn broken_lines_are_not_sockets() {
        for body in ["", "garbage\n", "0: a b 0A\n", "0: 0100007F:XXXX x 0A a b c d e 1\n"] {
            assert_eq!(read(body), [], "{body:?}");
        }
    }
}
