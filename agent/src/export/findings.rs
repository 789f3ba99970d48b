//! Findings and changes for people and machines: `/api/v1/findings`, `/api/v1/changes` and `inference_finding_active`.

use serde::{Deserialize, Serialize};

use super::{metrics::Id, observe::label, prometheus::Metrics};
use crate::diagnose::{Change, Diagnosis, Finding, State};

/// What was found so far, and what changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagnosed {
    /// Those that go on first, what explains most before the rest; then the others, newest first.
    pub findings: Vec<Finding>,
    /// Oldest first.
    pub changes: Vec<Change>,
    /// Older changes that are not kept any more.
    pub changes_gone: u64,
    /// Looks that were taken.
    pub looks: u64,
}

/// `/api/v1/findings`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// In the order of their weight.
    pub findings: Vec<Finding>,
}

/// `/api/v1/changes`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Changes {
    /// Oldest first.
    pub changes: Vec<Change>,
    /// Older ones that are not kept any more.
    pub gone: u64,
}

impl Diagnosed {
    /// What `diagnosis` knows now.
    pub fn of(diagnosis: &Diagnosis) -> Self {
        let changes = diagnosis.changes();
        Self {
            findings: diagnosis.findings(),
            changes: changes.iter().cloned().collect(),
            changes_gone: changes.gone(),
            looks: diagnosis.looks(),
        }
    }

    /// Findings that hold, or held at `since_ns` of the wall clock or later.
    pub fn findings_since(&self, since_ns: u64) -> Findings {
        let lately = |it: &&Finding| it.state == State::Active || it.last_ns >= since_ns;
        Findings { findings: self.findings.iter().filter(lately).cloned().collect() }
    }

    /// Changes at `since_ns` of the wall clock or later.
    pub fn changes_since(&self, since_ns: u64) -> Changes {
        let lately = |it: &&Change| it.at_ns >= since_ns;
        Changes { changes: self.changes.iter().filter(lately).cloned().collect(), gone: self.changes_gone }
    }

    /// Writes those that go on.
    pub(super) fn write(&self, metrics: &Metrics) {
        metrics.clear(Id::FindingActive);
        for finding in self.findings.iter().filter(|it| it.state == State::Active) {
            let service = label(finding.service.as_deref());
            let model = finding.model_name.as_deref().unwrap_or_default();
            metrics.set(Id::FindingActive, &[&finding.rule, service, model], 1.0);
        }
    }
}
