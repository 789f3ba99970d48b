//! gRPC messages in a body: each has a flag and a length before it, and is a document of its own.
//!
//! A message's text is masked. Kept are the prefixes, and of the `KServe` v2 inference messages the leading fields that
//! name the model and its version (protobuf, which writes fields in order): a field that is not next ends the reading of
//! its message.

use super::{json::Facts, mask::mask_all};

/// The flag, and four octets of length.
const PREFIX: u8 = 5;
/// Longest name that is kept.
const MAX_NAME: u8 = 127;
/// Tag of a protobuf field 1 with a length.
const FIELD_1: u8 = 0x0a;
/// The same of field 2.
const FIELD_2: u8 = 0x12;

/// Service of the `KServe` v2 inference protocol.
const KSERVE: &str = "/inference.GRPCInferenceService/";

/// What a method's messages look like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Method {
    /// `KServe` v2 `ModelInfer`: one request, one answer.
    Infer,
    /// `KServe` v2 `ModelStreamInfer`: a stream of either.
    StreamInfer,
    /// Any other.
    #[default]
    Other,
}

impl Method {
    /// By path.
    pub(super) fn of(path: &str) -> Self {
        match path.strip_prefix(KSERVE) {
            Some("ModelInfer") => Self::Infer,
            Some("ModelStreamInfer") => Self::StreamInfer,
            _ => Self::Other,
        }
    }

    /// Answers are streams, are single messages, or (`None`) may be either.
    pub(super) fn streams(self) -> Option<bool> {
        match self {
            Self::Infer => Some(false),
            Self::StreamInfer => Some(true),
            Self::Other => None,
        }
    }

    fn first(self, response: bool) -> Place {
        match (self, response) {
            (Self::Other, _) => Place::Masked,
            (Self::StreamInfer, true) => Place::Tag(Name::Error),
            _ => Place::Tag(Name::Model),
        }
    }
}

/// What a string at the beginning of a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    /// Field 1 of a request or an answer.
    Model,
    /// Field 2 of either.
    Version,
    /// Field 1 of a message of a stream of answers: its text is masked, but that there is one matters.
    Error,
}

/// Where in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At the tag of a field.
    Tag(Name),
    /// At its length, or at the length of the message inside ([`None`]).
    Length(Option<Name>, u8),
    /// In a name; so many octets are left.
    Name(Name, u8),
    /// Nothing more is read.
    Masked,
}

/// Reads the messages of one direction of a call.
#[derive(Clone, Debug)]
pub(super) struct Messages {
    method: Method,
    response: bool,
    prefix: [u8; 5],
    have: u8,
    left: u32,
    place: Place,
    name: Vec<u8>,
    facts: Facts,
    /// Where the next message begins is not known.
    lost: bool,
    /// Messages that were complete.
    whole: u64,
    /// Those of them that were no errors.
    content: u64,
    /// The message is an error.
    is_error: bool,
}

impl Messages {
    /// At the beginning of a body.
    pub(super) fn new(method: Method, response: bool) -> Self {
        Self {
            method,
            response,
            prefix: [0; 5],
            have: 0,
            left: 0,
            place: Place::Masked,
            name: Vec::new(),
            facts: Facts::default(),
            lost: false,
            whole: 0,
            content: 0,
            is_error: false,
        }
    }

    /// What they told.
    pub(super) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Messages that were complete so far.
    pub(super) fn whole(&self) -> u64 {
        self.whole
    }

    /// Reads and masks the next bytes; the number of messages with content that ended in them.
    pub(super) fn feed(&mut self, mut bytes: &mut [u8]) -> u64 {
        let before = self.content;
        while !self.lost && !bytes.is_empty() {
            if self.have < PREFIX {
                let octet = bytes[0];
                bytes = &mut bytes[1..];
                self.prefix_octet(octet);
                continue;
            }
            let len = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
            let (message, rest) = bytes.split_at_mut(len);
            self.message(message);
            bytes = rest;
            self.left -= u32::try_from(len).unwrap_or(self.left);
            self.end();
        }
        mask_all(bytes);
        self.content - before
    }

    /// So many bytes are missing, or an unknown number. True when messages may have ended in them.
    pub(super) fn gap(&mut self, len: Option<u64>) -> bool {
        let left = len.and_then(|len| u32::try_from(len).ok()).and_then(|len| self.left.checked_sub(len));
        match left {
            Some(left) if self.have == PREFIX && !self.lost => {
                self.left = left;
                self.place = Place::Masked;
                self.end();
                left == 0
            }
            _ => {
                self.lost = true;
                true
            }
        }
    }

    fn prefix_octet(&mut self, octet: u8) {
        self.prefix[usize::from(self.have)] = octet;
        self.have += 1;
        // The flag says compressed or not; anything else is no gRPC.
        self.lost = self.prefix[0] > 1;
        if self.have == PREFIX {
            let [flag, length @ ..] = self.prefix;
            self.left = u32::from_be_bytes(length);
            self.place = if flag == 0 { self.method.first(self.response) } else { Place::Masked };
            self.end();
        }
    }

    fn end(&mut self) {
        if self.left == 0 {
            self.have = 0;
            self.whole += 1;
            self.content += u64::from(!self.is_error);
            self.is_error = false;
        }
    }

    fn message(&mut self, bytes: &mut [u8]) {
        let mut at = 0;
        while at < bytes.len() && self.place != Place::Masked {
            let behind = self.left - u32::try_from(at + 1).unwrap_or(self.left);
            // An octet that ends the reading stays, so that it ends it again.
            self.place = self.field(bytes[at], behind).unwrap_or(Place::Masked);
            at += 1;
        }
        mask_all(&mut bytes[at..]);
    }

    /// Takes one octet, with so many behind it in the message; where that leads, or `None` when it is not what could come next.
    fn field(&mut self, octet: u8, behind: u32) -> Option<Place> {
        Some(match self.place {
            Place::Tag(Name::Version) if octet == FIELD_2 => Place::Length(Some(Name::Version), 0),
            Place::Tag(name) if octet == FIELD_1 && name != Name::Version => Place::Length(Some(name), 0),
            // No error: the answer itself.
            Place::Tag(Name::Error) if octet == FIELD_2 => Place::Length(None, 0),
            Place::Length(Some(name @ (Name::Model | Name::Version)), _)
                if (1..=MAX_NAME).contains(&octet) && u32::from(octet) <= behind =>
            {
                self.name.clear();
                Place::Name(name, octet)
            }
            Place::Length(Some(Name::Error), _) if octet > 0 => {
                self.facts.error = true;
                self.is_error = true;
                Place::Masked
            }
            // The length of the message inside is a varint of at most five octets.
            Place::Length(None, n) if octet >= 0x80 && n < 4 => Place::Length(None, n + 1),
            Place::Length(None, _) if octet < 0x80 => Place::Tag(Name::Model),
            Place::Name(name, left) if is_name(octet) => {
                self.name.push(octet);
                if left > 1 { Place::Name(name, left - 1) } else { self.named(name) }
            }
            _ => return None,
        })
    }

    /// A name is complete; where that leads.
    fn named(&mut self, name: Name) -> Place {
        let text = std::str::from_utf8(&self.name).ok().map(str::to_owned);
        if name == Name::Version {
            self.facts.version = text;
            return Place::Masked;
        }
        self.facts.model = text;
        Place::Tag(Name::Version)
    }
}

fn is_name(octet: u8) -> bool {
    octet >= b' ' && octet != 0x7f
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: &[u8]) -> Vec<u8> {
        let len = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[0][..], &len, body].concat()
    }

    fn infer(model: &str, rest: &[u8]) -> Vec<u8> {
        let len = u8::try_from(model.len()).unwrap();
        [&[FIELD_1, len][..], model.as_bytes(), rest].concat()
    }

    /// What bytes tell, masked; the same whatever the split, and when masked again.
    fn read(method: Method, response: bool, bytes: &[u8]) -> (u64, Option<String>, bool, Vec<u8>) {
        let whole = once(method, response, &[bytes]);
        for at in 0..bytes.len() {
            let (a, b) = bytes.split_at(at);
            assert_eq!(once(method, response, &[a, b]), whole, "split at {at}");
        }
        assert_eq!(once(method, response, &[&whole.3]), whole);
        whole
    }

    fn once(method: Method, response: bool, pieces: &[&[u8]]) -> (u64, Option<String>, bool, Vec<u8>) {
        let mut messages = Messages::new(method, response);
        let mut masked = Vec::new();
        let mut whole = 0;
        for piece in pieces {
            let mut bytes = piece.to_vec();
            whole += messages.feed(&mut bytes);
            masked.extend(bytes);
        }
        (whole, messages.facts().model.clone(), messages.facts().error, masked)
    }

    #[test]
    fn the_model_is_read_and_the_rest_masked() {
        let bytes = [message(&infer("llm", b"\x12\x01secret")), message(b"")].concat();
        let (whole, model, error, masked) = read(Method::Infer, false, &bytes);
        assert_eq!((whole, model.as_deref(), error), (2, Some("llm"), false));
        assert_eq!(masked, [message(&infer("llm", b"\x12\x01sxxxxx")), message(b"")].concat());
    }

    #[test]
    fn the_version_is_read_where_it_is_next() {
        for (rest, version, left) in [
            (&b"\x12\x013\x1a\x06secret"[..], Some("3"), &b"\x12\x013xxxxxxxx"[..]),
            (b"\x1a\x06secret", None, b"\x1axxxxxxx"),
            (b"\x12\x00secret", None, b"\x12\x00xxxxxx"),
            (b"\x12\x7fsecret", None, b"\x12\x7fxxxxxx"),
            (b"\x0a\x016secret", None, b"\x0axxxxxxxx"),
        ] {
            let mut bytes = message(&infer("llm", rest));
            let mut messages = Messages::new(Method::Infer, true);
            messages.feed(&mut bytes);
            let facts = messages.facts();
            assert_eq!(
                (facts.model.as_deref(), facts.version.as_deref()),
                (Some("llm"), version),
                "{rest:?}"
            );
            assert_eq!(bytes, message(&infer("llm", left)), "{rest:?}");
        }
    }

    #[test]
    fn an_answer_of_a_stream_is_an_error_or_holds_the_answer() {
        let inner = infer("llm", b"secret");
        let answer = [&[FIELD_2, 0x80 | u8::try_from(inner.len()).unwrap(), 0][..], &inner].concat();
        let (whole, model, error, _) = read(Method::StreamInfer, true, &message(&answer));
        assert_eq!((whole, model.as_deref(), error), (1, Some("llm"), false));
        let (whole, model, error, masked) = read(Method::StreamInfer, true, &message(b"\x0a\x06secret"));
        assert_eq!((whole, model, error), (0, None, true));
        assert_eq!(masked, message(b"\x0a\x06xxxxxx"));
    }

    #[test]
    fn what_is_no_known_message_is_masked_whole() {
        for (method, body) in [
            (Method::Other, &b"\x0a\x03abc"[..]),
            (Method::Infer, b"\x12\x03abc"),
            (Method::Infer, b"\x0a\xff\xff\xff\xff\xff\x0f"),
            (Method::Infer, b"\x0a\x00abc"),
            (Method::Infer, b"\x0a\x7fabc"),
            (Method::Infer, b"\x0a\x03a\x00c"),
            (Method::StreamInfer, b"\x0a\x03"),
        ] {
            let (whole, model, error, _) = read(method, false, &message(body));
            assert_eq!((whole, model, error), (1, None, false), "{method:?} {body:?}");
        }
        assert_eq!(read(Method::Other, false, &message(b"abc")).3, message(b"xxx"));
    }

    #[test]
    fn lengths_are_only_believed() {
        let (whole, .., masked) = read(Method::Infer, false, b"\x00\xff\xff\xff\xffabc");
        assert_eq!((whole, &masked[..]), (0, &b"\x00\xff\xff\xff\xffaxx"[..]));
        let (whole, .., masked) = read(Method::Infer, false, b"{\"model\":1}");
        assert_eq!((whole, &masked[..]), (0, &b"{xxxxxxxxxx"[..]));
    }

    #[test]
    fn a_gap_inside_a_message_leaves_the_next_one() {
        let mut messages = Messages::new(Method::Infer, false);
        let bytes = message(&[b'a'; 100]);
        assert_eq!(messages.feed(&mut bytes[..50].to_vec()), 0);
        assert!(!messages.gap(Some(54)));
        assert!(messages.gap(Some(1)));
        assert_eq!(messages.whole(), 1);
        assert_eq!(messages.feed(&mut message(b"a")), 1);
        assert!(messages.gap(Some(1)));
        assert_eq!(messages.feed(&mut message(b"a")), 0);
    }
}
