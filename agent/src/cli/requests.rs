//! `requests`: a client of the daemon's API.

use std::{
    io::{BufRead as _, BufReader},
    process::ExitCode,
};

use anyhow::Context as _;

use super::{Outcome, client, failure::Failure, output::Output, table::Table};
use crate::request::RequestRecord;

/// Flags of the command.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Go on with requests as they finish; ends with the daemon.
    #[arg(long)]
    follow: bool,
    /// One JSON record a line.
    #[arg(long)]
    json: bool,
    /// Only the newest N of those that the daemon keeps.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// The daemon's API.
    #[arg(long, value_name = "URL", default_value = client::DEFAULT_URL)]
    url: String,
}

pub(super) fn requests(args: &Args) -> Outcome {
    let mut answer = BufReader::new(client::get(&args.url, &path(args))?.into_body().into_reader());
    let mut printer = Printer { out: Output::new(), table: None };
    if !args.json {
        printer.table = Some(Table::new(printer.out.is_terminal()));
    }
    let mut line = String::new();
    loop {
        line.clear();
        match answer.read_line(&mut line) {
            Ok(0) => break,
            Ok(_) => printer.print(&line)?,
            Err(error) => {
                printer.out.flush()?;
                let lost = anyhow::Error::new(error).context(format!("lost the agent at {}", args.url));
                return Err(Failure::unavailable(lost));
            }
        }
        // Nothing more is here yet: show what there is.
        if answer.buffer().is_empty() {
            printer.out.flush()?;
        }
    }
    printer.out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn path(args: &Args) -> String {
    let mut path = "/api/v1/requests".to_owned();
    let limit = args.limit.map(|limit| format!("limit={limit}"));
    let follow = args.follow.then(|| "follow=1".to_owned());
    for (n, parameter) in [limit, follow].into_iter().flatten().enumerate() {
        path.push(if n == 0 { '?' } else { '&' });
        path.push_str(&parameter);
    }
    path
}

struct Printer {
    out: Output,
    /// Absent for JSON.
    table: Option<Table>,
}

impl Printer {
    fn print(&mut self, line: &str) -> Result<(), Failure> {
        let Some(table) = &mut self.table else { return self.out.text(line) };
        let record: RequestRecord = serde_json::from_str(line)
            .context("the agent's answer is not a request record; is it of another version?")
            .map_err(Failure::failed)?;
        self.out.text(&table.row(&record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_parameters() {
        let cases = [
            (false, None, "/api/v1/requests"),
            (true, None, "/api/v1/requests?follow=1"),
            (false, Some(3), "/api/v1/requests?limit=3"),
            (true, Some(3), "/api/v1/requests?limit=3&follow=1"),
        ];
        for (follow, limit, want) in cases {
            let args = Args { follow, json: false, limit, url: String::new() };
            assert_eq!(path(&args), want);
        }
    }
}
