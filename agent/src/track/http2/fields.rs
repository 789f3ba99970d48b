//! The header fields that are looked at, and what a header block said of them.

use super::super::{
    grpc::Method,
    http1::head::{self, Content, Headers},
    mask::Narrow,
};

/// Names that are looked at. Sorted.
pub(super) const NAMES: &[&[u8]] = &[
    b":method",
    b":path",
    b":status",
    b"content-encoding",
    b"content-length",
    b"content-type",
    b"grpc-status",
    b"grpc-timeout",
    b"traceparent",
    b"x-request-id",
];
/// The fields of [`NAMES`].
const FIELDS: [Field; 10] = [
    Field::Method,
    Field::Path,
    Field::Status,
    Field::ContentEncoding,
    Field::ContentLength,
    Field::ContentType,
    Field::GrpcStatus,
    Field::GrpcTimeout,
    Field::TraceParent,
    Field::RequestId,
];
/// Longest value that is kept; a longer one is as unknown as one that was not captured.
pub(super) const MAX_VALUE: usize = 1024;

/// A header field, by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Field {
    Method,
    Path,
    Status,
    ContentEncoding,
    ContentLength,
    ContentType,
    GrpcStatus,
    GrpcTimeout,
    TraceParent,
    RequestId,
    /// One whose value does not matter, and is masked.
    #[default]
    Other,
    /// Its name is in an entry of the table that was not seen.
    Unknown,
}

impl Field {
    /// The field with exactly this name.
    pub(super) fn named(name: Narrow) -> Self {
        name.exact(NAMES).map_or(Self::Other, |at| FIELDS[at])
    }

    /// Its value is kept.
    pub(super) fn is_kept(self) -> bool {
        !matches!(self, Self::Other | Self::Unknown)
    }

    /// Whether a character of the value is kept; what follows one that is not, is neither.
    pub(super) fn keeps(self, symbol: u8) -> Keep {
        match (self, symbol) {
            (Self::Path, b'?' | b'#') => Keep::End,
            (Self::ContentLength, b'0'..=b'9') => Keep::Yes,
            (Self::ContentLength, _) => Keep::Bad,
            (_, b' '..=b'~') => Keep::Yes,
            _ => Keep::Bad,
        }
    }
}

/// What a character of a kept value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// A part of it.
    Yes,
    /// The end of what is kept of it.
    End,
    /// Nothing that such a value may contain: it is unknown.
    Bad,
}

/// A value; `None` when it is not known (or does not matter).
pub(super) type Value = Option<Box<[u8]>>;

/// What the fields of one header block said.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// In the order of [`FIELDS`]; the outer `None` for an absent field.
    values: [Option<Value>; FIELDS.len()],
    /// Some field's name is not known: what is absent may have been there.
    pub unknown: bool,
    /// It could not be read to its end.
    pub bad: bool,
}

impl Block {
    /// Bytes held of values.
    pub(super) fn held(&self) -> usize {
        self.values.iter().flatten().flatten().map(|value| value.len()).sum()
    }

    /// Adds a field. The first of a name counts, so that no block costs more than its own octets.
    pub(super) fn add(&mut self, field: Field, value: Option<&[u8]>) {
        match FIELDS.iter().position(|f| *f == field) {
            Some(at) => {
                self.values[at].get_or_insert_with(|| value.map(Into::into));
            }
            None => self.unknown |= field == Field::Unknown,
        }
    }

    /// Everything in it is known.
    pub(super) fn is_complete(&self) -> bool {
        !self.unknown && !self.bad
    }

    pub(super) fn value(&self, field: Field) -> Option<&str> {
        let at = FIELDS.iter().position(|f| *f == field)?;
        std::str::from_utf8(self.values[at].as_ref()?.as_deref()?).ok()
    }

    /// Status of a response.
    pub(super) fn status(&self) -> Option<u16> {
        self.value(Field::Status)?.parse().ok().filter(|status| (100..1000).contains(status))
    }

    /// Length of the body.
    pub(super) fn content_len(&self) -> Option<u64> {
        self.value(Field::ContentLength)?.parse().ok()
    }

    /// Status of a gRPC call.
    pub(super) fn grpc_status(&self) -> Option<u32> {
        self.value(Field::GrpcStatus)?.parse().ok()
    }

    /// A request's head, with `None` for what is not known.
    pub(super) fn request(&self) -> head::Request {
        let path = self.value(Field::Path).map(|target| head::shortened(head::path(target)));
        let method = path.as_deref().map_or(Method::Other, Method::of);
        head::Request {
            method: self.value(Field::Method).map(str::to_owned),
            headers: self.headers(method),
            path,
            protocol: super::PROTOCOL,
        }
    }

    /// What requests and responses have in common; `method` is that of a gRPC call.
    pub(super) fn headers(&self, method: Method) -> Headers {
        let mut headers = Headers::default();
        for (field, name) in [
            (Field::ContentType, "content-type"),
            (Field::ContentEncoding, "content-encoding"),
            (Field::RequestId, "x-request-id"),
            (Field::TraceParent, "traceparent"),
        ] {
            if let Some(value) = self.value(field) {
                headers.add(name, value.as_bytes());
            }
        }
        headers.timeout_ns = self.value(Field::GrpcTimeout).and_then(timeout_ns);
        let grpc = match self.value(Field::ContentType) {
            Some(content_type) => is_grpc(content_type),
            // The paths of these methods are gRPC's alone.
            None => !self.is_complete() && method != Method::Other,
        };
        if grpc && headers.content != Content::Opaque {
            headers.content = Content::Grpc(method);
        }
        headers
    }
}

/// A gRPC call's time limit: at most eight digits and a unit.
fn timeout_ns(value: &str) -> Option<u64> {
    let (at, unit) = value.char_indices().next_back()?;
    let unit_ns = match unit {
        'H' => 3_600_000_000_000,
        'M' => 60_000_000_000,
        'S' => 1_000_000_000,
        'm' => 1_000_000,
        'u' => 1000,
        'n' => 1,
        _ => return None,
    };
    let digits = &value[..at];
    let valid = digits.len() <= 8 && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse::<u64>().ok().filter(|_| valid).map(|count| count.saturating_mul(unit_ns))
}

fn is_grpc(content_type: &str) -> bool {
    match content_type.strip_prefix("application/grpc") {
        Some(rest) => rest.is_empty() || rest.starts_with(['+', ';']),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted() {
        assert!(NAMES.is_sorted());
        assert_eq!(NAMES.len(), FIELDS.len());
    }

    #[test]
    fn limits_of_grpc_calls() {
        for (text, expected) in [
            ("100m", Some(100_000_000)),
            ("5S", Some(5_000_000_000)),
            ("1H", Some(3_600_000_000_000)),
            ("99999999H", Some(u64::MAX)),
            ("7n", Some(7)),
            ("123456789S", None),
            ("+1S", None),
            ("S", None),
            ("5s", None),
            ("", None),
        ] {
            assert_eq!(timeout_ns(text), expected, "{text}");
        }
    }

    #[test]
    fn content_types_of_grpc() {
        for (text, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;a=b", true),
            ("application/grpc-web", false),
            ("application/json", false),
        ] {
            assert_eq!(is_grpc(text), expected, "{text}");
        }
    }
}
