//! Every gap between tokens that the agent measured, from its recording.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use agent::pipeline::{Output, Pipeline, Settings};
use agent::source::recording::Reader;
use anyhow::{Context, Result};

/// Gaps of each request of a port by its id, seconds. Of several records with one id, those of the last.
pub fn measured(recording: &Path, port: u16) -> Result<BTreeMap<String, Vec<f64>>> {
    let file = File::open(recording).with_context(|| format!("cannot read {}", recording.display()))?;
    let mut reader = Reader::new(BufReader::new(file))?;
    let mut pipeline = Pipeline::new(Settings {});
    let (mut gaps, mut record, mut outputs) = (BTreeMap::new(), Vec::new(), Vec::new());
    while reader.read(&mut record)? {
        pipeline.process(&mut record, &mut outputs);
        for output in outputs.drain(..) {
            if let Output::Request(request) = output
                // On a unix socket there is none.
                && request.local_port.is_none_or(|local| local == port)
            {
                gaps.insert(request.request_id.unwrap_or_default(), request.tbt_gaps_s);
            }
        }
    }
    Ok(gaps)
}
