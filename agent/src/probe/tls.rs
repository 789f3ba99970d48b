//! The one table of TLS library functions that are probed. All of them take the `SSL` first, then a buffer and its
//! length.

use wire::{
    names,
    tls::{COOKIE_COUNTED, COOKIE_SEND},
};

use super::table::Program;

/// Symbol that tells a TLS library, or a program that has one in it.
pub const TLS_MARK: &str = "SSL_read";

/// One function.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// Its symbol.
    pub symbol: &'static str,
    /// Given to its programs at attach.
    pub cookie: u64,
    /// Programs to attach, entry first.
    pub programs: &'static [Program],
    /// Every version has it: its absence is worth a warning.
    pub required: bool,
    /// Prototype in `openssl/ssl.h`.
    pub prototype: &'static str,
}

const MOVES: &[Program] = &[names::PROG_TLS_ENTER, names::PROG_TLS_RETURN];

/// Every function that is probed. `SSL_peek` and its like take nothing off the stream and are not among them.
pub const FUNCTIONS: &[Function] = &[
    Function {
        symbol: "SSL_read",
        cookie: 0,
        programs: MOVES,
        required: true,
        prototype: "int SSL_read(SSL *ssl, void *buf, int num)",
    },
    Function {
        symbol: "SSL_read_ex",
        cookie: COOKIE_COUNTED,
        programs: MOVES,
        required: false,
        prototype: "int SSL_read_ex(SSL *ssl, void *buf, size_t num, size_t *readbytes)",
    },
    Function {
        symbol: "SSL_write",
        cookie: COOKIE_SEND,
        programs: MOVES,
        required: true,
        prototype: "int SSL_write(SSL *ssl, const void *buf, int num)",
    },
    Function {
        symbol: "SSL_write_ex",
        cookie: COOKIE_SEND | COOKIE_COUNTED,
        programs: MOVES,
        required: false,
        prototype: "int SSL_write_ex(SSL *ssl, const void *buf, size_t num, size_t *written)",
    },
    Function {
        symbol: "SSL_do_handshake",
        cookie: 0,
        programs: &[names::PROG_TLS_HANDSHAKE],
        required: true,
        prototype: "int SSL_do_handshake(SSL *ssl)",
    },
    Function {
        symbol: "SSL_free",
        cookie: 0,
        programs: &[names::PROG_TLS_FREE],
        required: true,
        prototype: "void SSL_free(SSL *ssl)",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_say_what_the_prototypes_do() {
        for function in FUNCTIONS {
            assert!(function.prototype.contains(&format!(" {}(", function.symbol)), "{}", function.symbol);
            let counted = function.prototype.contains("size_t *");
            assert_eq!(function.cookie & COOKIE_COUNTED != 0, counted, "{}", function.symbol);
            let sends = function.prototype.contains("const void *buf");
            assert_eq!(function.cookie & COOKIE_SEND != 0, sends, "{}", function.symbol);
        }
    }
}
