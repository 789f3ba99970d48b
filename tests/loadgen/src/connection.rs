//! Connections to the server.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, sockopt};

/// Receive buffer of a slow client; the kernel makes it a little larger.
const SMALL_BUFFER: usize = 2048;

/// A connection and what it has carried.
pub(crate) struct Connection {
    pub stream: TcpStream,
    /// Requests so far.
    pub carried: u32,
}

impl Connection {
    /// Connects. A slow client's receive buffer is made small first, so that the window never opens.
    pub(crate) fn open(address: SocketAddr, slow: bool, timeout: Duration) -> io::Result<Self> {
        let stream = if slow { small(address)? } else { TcpStream::connect_timeout(&address, timeout)? };
        stream.set_nodelay(true)?;
        Ok(Self { stream, carried: 0 })
    }
}

fn small(address: SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket(family, SocketType::STREAM, None)?;
    sockopt::set_socket_recv_buffer_size(&socket, SMALL_BUFFER)?;
    // On loopback this is refused or done at once unless the backlog is full; then the kernel gives up by itself.
    rustix::net::connect(&socket, &address)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_slow_client_has_a_small_window() {
        let server = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = server.local_addr().unwrap();
        let buffer = |slow| {
            let connection = Connection::open(address, slow, Duration::from_secs(5)).unwrap();
            sockopt::socket_recv_buffer_size(&connection.stream).unwrap()
        };
        assert!(buffer(true) <= 2 * SMALL_BUFFER + 1024);
        assert!(buffer(false) > 16 * SMALL_BUFFER);
    }
}
