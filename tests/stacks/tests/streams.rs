//! How events lie in writes, and whose they are.

use std::path::Path;

use anyhow::{Result, ensure};
use stacks::compare::Report;
use stacks::machine::Need;
use stacks::raw::{self, Raw, post};

use crate::http::odd;
use crate::{Test, expect_all, judge};

pub(crate) const TESTS: &[(&str, Need, Test)] = &[
    ("several_events_in_one_write", Need::Python, several_events_in_one_write),
    ("choices_by_turns", Need::Python, choices_by_turns),
];

const STREAM_END: &str = "0\r\n\r\n";
const COUNT: usize = 20;

fn ask_some(port: u16, way: &str) -> Result<()> {
    let mut raw = Raw::connect(port)?;
    for number in 0..COUNT {
        raw.send(post(
            &format!("/{way}/v1/chat/completions"),
            &format!("s{number}"),
            "",
            &raw::body(true, 16),
        ))?;
        raw.until(STREAM_END)?;
    }
    Ok(())
}

/// Events that were written together came together: no time between them is made up.
fn several_events_in_one_write(dir: &Path) -> Result<()> {
    let (mut peer, mut watch) = odd("threads", dir)?;
    ask_some(peer.port, "coalesced")?;
    let records = watch.records(peer.port, COUNT)?;
    let wrong = records.iter().find(|record| record.chunks != Some(16) || record.tbt_p50_s != Some(0.0));
    ensure!(wrong.is_none(), "two of three gaps are none: {wrong:#?}");
    expect_all(watch, &mut peer, &[], COUNT, dir)
}

/// Events of two choices: all are counted, the first is the first of either, and gaps, which would be nobody's, are
/// not given.
fn choices_by_turns(dir: &Path) -> Result<()> {
    let (mut peer, mut watch) = odd("threads", dir)?;
    ask_some(peer.port, "choices")?;
    watch.records(peer.port, COUNT)?;
    let records = watch.finish(peer.port)?;
    peer.stop()?;
    let invented = records
        .iter()
        .find(|record| record.chunks != Some(32) || record.tbt_p50_s.is_some() || record.tbt_max_s.is_some());
    ensure!(invented.is_none(), "{invented:#?}");
    judge(&Report::new(&peer.truth()?, &[], &records), COUNT, dir)
}
