//! Why a record could not be decoded.

use thiserror::Error;

/// A record that is not what it should be. Each is counted by [`DecodeError::reason`] and skipped.
#[derive(Debug, Error)]
pub enum DecodeError {
    /// Fewer bytes than a header, or than the header says.
    #[error("record of {have} bytes is shorter than the {need} it needs")]
    Short {
        /// Bytes there are.
        have: usize,
        /// Bytes there should be.
        need: usize,
    },
    /// The object in the kernel, or the writer of the recording, is of another version.
    #[error("record of ABI {found}, this agent reads ABI {}", wire::ABI)]
    Abi {
        /// ABI in the record.
        found: u16,
    },
    /// A kind this agent does not know.
    #[error("record of unknown kind {kind:#x}")]
    UnknownKind {
        /// The kind.
        kind: u16,
    },
    /// A field has a value it cannot have.
    #[error("record of kind {kind:?} has an impossible {field}")]
    BadField {
        /// Kind of the record.
        kind: wire::Kind,
        /// Name of the field.
        field: &'static str,
    },
    /// An observation that is not the JSON it should be.
    #[error("observation is not valid")]
    Observation(#[source] serde_json::Error),
}

impl DecodeError {
    /// The reason as a metric label: a closed set.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Short { .. } => "short",
            Self::Abi { .. } => "abi",
            Self::UnknownKind { .. } => "unknown_kind",
            Self::BadField { .. } => "bad_field",
            Self::Observation(_) => "bad_observation",
        }
    }
}
