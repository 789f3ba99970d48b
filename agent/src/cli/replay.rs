//! `replay`: the whole product from a file.

use std::{fs::File, io::BufReader, path::Path, process::ExitCode};

use anyhow::Context as _;
use wire::Kind;
use zerocopy::FromBytes as _;

use super::{Outcome, failure::Failure, output::Output, summary::Summary, table::Table};
use crate::{
    decode::Observation,
    export::json,
    pipeline::{self, Output as Result_, Pipeline},
    request::{RequestRecord, StepRecord},
    source::recording::{Reader, RecordingError},
};

/// What is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Requests for people, and a summary.
    Table,
    /// Requests as JSON.
    Json,
    /// Steps.
    Steps,
    /// Findings.
    Findings,
}

impl Form {
    /// By the flags, of which one is set at most.
    pub(super) fn of(json: bool, steps: bool, findings: bool) -> Self {
        match (json, steps, findings) {
            (_, _, true) => Self::Findings,
            (_, true, _) => Self::Steps,
            (true, ..) => Self::Json,
            _ => Self::Table,
        }
    }
}

pub(super) fn replay(path: &Path, form: Form) -> Outcome {
    let name = || format!("cannot replay {}", path.display());
    let file = File::open(path).with_context(name).map_err(Failure::failed)?;
    let reader =
        Reader::new(BufReader::with_capacity(1 << 18, file)).with_context(name).map_err(Failure::failed)?;
    let mut printer = Printer::new(form);
    let mut replay =
        Replay { reader, pipeline: Pipeline::new(pipeline::Settings {}), ended: false, last_ns: 0 };
    let damage = replay.run(&mut printer)?;
    printer.finish(&replay.pipeline)?;
    match damage {
        None => Ok(ExitCode::SUCCESS),
        Some(error) => Err(Failure::failed(anyhow::Error::new(error).context(name()))),
    }
}

struct Replay<R> {
    reader: Reader<R>,
    pipeline: Pipeline,
    /// The recording has its regular end.
    ended: bool,
    /// Time of the newest record.
    last_ns: u64,
}

impl<R: std::io::Read> Replay<R> {
    /// Takes every record through; the damage at which it had to stop, if there was any.
    fn run(&mut self, printer: &mut Printer) -> Result<Option<RecordingError>, Failure> {
        let mut record = Vec::new();
        let damage = loop {
            match self.reader.read(&mut record) {
                Ok(true) => self.take(&mut record, printer)?,
                Ok(false) => break None,
                Err(error) => break Some(error),
            }
        };
        if !self.ended {
            // The writer was killed or its file was full: what is provisional is as final as it will be.
            self.take(&mut Observation::End.to_record(self.last_ns), printer)?;
        }
        Ok(damage)
    }

    fn take(&mut self, record: &mut [u8], printer: &mut Printer) -> Result<(), Failure> {
        self.note(record);
        let mut outputs = Vec::new();
        self.pipeline.process(record, &mut outputs);
        outputs.iter().try_for_each(|output| match output {
            Result_::Request(record) => printer.request(record),
            Result_::Told(step) => printer.step(step),
            Result_::Step { .. }
            | Result_::Counted { .. }
            | Result_::Memory { .. }
            | Result_::Incident { .. }
            | Result_::Rare { .. }
            | Result_::WantWhole(_) => Ok(()),
        })
    }

    fn note(&mut self, record: &[u8]) {
        let Ok((header, json)) = wire::Header::read_from_prefix(record) else { return };
        self.last_ns = self.last_ns.max(header.time_ns);
        if header.kind == Kind::Observation as u16 {
            self.ended = serde_json::from_slice(json).is_ok_and(|seen: Observation| seen == Observation::End);
        }
    }
}

/// Standard output in one of its forms.
enum Printer {
    Json(Output),
    Steps(Output),
    Findings(Output),
    Table { out: Output, table: Table, summary: Summary },
}

impl Printer {
    fn new(form: Form) -> Self {
        let out = Output::new();
        match form {
            Form::Steps => Self::Steps(out),
            Form::Json => Self::Json(out),
            Form::Findings => Self::Findings(out),
            Form::Table => {
                let table = Table::new(out.is_terminal());
                Self::Table { out, table, summary: Summary::default() }
            }
        }
    }

    fn request(&mut self, record: &RequestRecord) -> Result<(), Failure> {
        match self {
            Self::Json(out) => out.text(&json::line(record)),
            Self::Steps(_) | Self::Findings(_) => Ok(()),
            Self::Table { out, table, summary } => {
                summary.add(record);
                out.text(&table.row(record))
            }
        }
    }

    fn step(&mut self, step: &StepRecord) -> Result<(), Failure> {
        match self {
            Self::Steps(out) => out.text(&json::line(step)),
            Self::Json(_) | Self::Findings(_) | Self::Table { .. } => Ok(()),
        }
    }

    fn finish(&mut self, pipeline: &Pipeline) -> Result<(), Failure> {
        match self {
            Self::Json(out) | Self::Steps(out) => out.flush(),
            Self::Findings(out) => {
                let found = pipeline.diagnosis().findings();
                found.iter().try_for_each(|finding| out.text(&json::line(finding)))?;
                out.flush()
            }
            Self::Table { out, summary, .. } => {
                out.text(&summary.text(pipeline.health()))?;
                out.flush()
            }
        }
    }
}
