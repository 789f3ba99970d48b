//! How much of a service's TLS is in sight.

use std::collections::BTreeMap;

use serde::Serialize;
use wire::tls::{self, Verdict};

use super::{ServiceId, process::MAX_SERVICES};

/// What was found out about the TLS of one service, since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TlsCounts {
    /// Connections that speak TLS.
    pub connections: u64,
    /// Connections that were linked to their plaintext; again after a contradiction.
    pub linked: u64,
    /// Connections that carry application data which nobody decrypts in our sight: their requests are not seen.
    pub opaque: u64,
    /// Calls of a TLS library whose connection is not known: their plaintext was dropped.
    pub unlinked_calls: u64,
    /// Bytes of that.
    pub unlinked_bytes: u64,
    /// Links that turned out to be wrong, and were cut.
    pub contradicted: u64,
    /// Linked connections on which records of TLS could not be told apart.
    pub unframed: u64,
}

impl TlsCounts {
    /// Adds those of another service of the same name.
    pub fn add(&mut self, other: &Self) {
        let Self { connections, linked, opaque, unlinked_calls, unlinked_bytes, contradicted, unframed } =
            other;
        self.connections += connections;
        self.linked += linked;
        self.opaque += opaque;
        self.unlinked_calls += unlinked_calls;
        self.unlinked_bytes = self.unlinked_bytes.saturating_add(*unlinked_bytes);
        self.contradicted += contradicted;
        self.unframed += unframed;
    }
}

/// The counts of all services.
#[derive(Debug, Default)]
pub(super) struct Secure {
    services: BTreeMap<ServiceId, TlsCounts>,
}

impl Secure {
    /// Adds a finding about a service. Those of services that are not `known` any more make room.
    pub(super) fn found(&mut self, service: ServiceId, verdict: &Verdict, known: impl Fn(ServiceId) -> bool) {
        if self.services.len() >= MAX_SERVICES {
            self.services.retain(|id, _| known(*id));
        }
        let counts = self.services.entry(service).or_default();
        match verdict.finding {
            tls::SEEN => counts.connections += 1,
            tls::LINKED => counts.linked += 1,
            tls::OPAQUE => counts.opaque += 1,
            tls::UNLINKED => {
                counts.unlinked_calls += 1;
                counts.unlinked_bytes = counts.unlinked_bytes.saturating_add(verdict.bytes);
            }
            tls::CONTRADICTED => counts.contradicted += 1,
            _ => counts.unframed += 1,
        }
    }

    /// All of them, by service.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ServiceId, TlsCounts)> {
        self.services.iter().map(|(service, counts)| (*service, *counts))
    }
}
