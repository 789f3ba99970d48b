//! `requests`: a client of the daemon's API.

use std::{
    io::{BufRead as _, BufReader},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use ureq::{Body, http::Response};

use super::{Outcome, failure::Failure, output::Output, table::Table};
use crate::request::RequestRecord;

/// How long the daemon may take to accept, and to begin its answer.
const PATIENCE: Duration = Duration::from_secs(5);

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
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9414")]
    url: String,
}

pub(super) fn requests(args: &Args) -> Outcome {
    let mut answer = BufReader::new(ask(args)?.into_body().into_reader());
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

fn ask(args: &Args) -> Result<Response<Body>, Failure> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .proxy(None)
        .timeout_connect(Some(PATIENCE))
        .timeout_recv_response(Some(PATIENCE))
        .http_status_as_error(false)
        .build()
        .into();
    let unreachable = || format!("cannot reach the agent at {}; is `stagelens run` running there?", args.url);
    let url = url(args);
    let response = agent.get(&url).call().with_context(unreachable).map_err(Failure::unavailable)?;
    if response.status().is_success() {
        return Ok(response);
    }
    let status = response.status();
    let text = response.into_body().with_config().limit(1024).read_to_string().unwrap_or_default();
    Err(Failure::unavailable(anyhow!("{url} answered {status}: {}", text.trim())))
}

fn url(args: &Args) -> String {
    let mut url = format!("{}/api/v1/requests", args.url.trim_end_matches('/'));
    let limit = args.limit.map(|limit| format!("limit={limit}"));
    let follow = args.follow.then(|| "follow=1".to_owned());
    for (n, parameter) in [limit, follow].into_iter().flatten().enumerate() {
        url.push(if n == 0 { '?' } else { '&' });
        url.push_str(&parameter);
    }
    url
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
            (false, None, "http://h:1/api/v1/requests"),
            (true, None, "http://h:1/api/v1/requests?follow=1"),
            (false, Some(3), "http://h:1/api/v1/requests?limit=3"),
            (true, Some(3), "http://h:1/api/v1/requests?limit=3&follow=1"),
        ];
        for (follow, limit, want) in cases {
            let args = Args { follow, json: false, limit, url: "http://h:1/".into() };
            assert_eq!(url(&args), want);
        }
    }
}
