//! The loop over a source that is not a kernel.

use std::{
    cell::RefCell,
    collections::VecDeque,
    path::Path,
    rc::Rc,
    sync::mpsc::{SyncSender, sync_channel},
};

use wire::{Header, Kind, process::Process};
use zerocopy::IntoBytes as _;

use super::*;
use crate::{
    decode::{Event, decode},
    export::{json, prometheus},
    pipeline,
    source::recording::Reader,
};

#[path = "../../../tests/hand/request.rs"]
mod hand;

/// Records in rounds; stops the loop when there are none left.
struct Script {
    rounds: VecDeque<Vec<Vec<u8>>>,
    /// Sent just before the record of this number is given.
    observe: Option<(usize, SyncSender<Vec<u8>>, Vec<u8>)>,
    given: usize,
    stop: Arc<AtomicBool>,
}

impl Ring for Script {
    fn wait(&mut self, _: Duration) -> io::Result<()> {
        if self.rounds.is_empty() {
            self.stop.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn drain(&mut self, _: usize, take: &mut dyn FnMut(&[u8])) -> usize {
        let records = self.rounds.pop_front().unwrap_or_default();
        for record in &records {
            if let Some((at, to, observation)) = &self.observe
                && *at == self.given
            {
                to.send(observation.clone()).unwrap();
            }
            take(record);
            self.given += 1;
        }
        records.len()
    }
}

#[derive(Clone, Default)]
struct Seen(Rc<RefCell<Vec<Vec<u8>>>>);

impl Host for Seen {
    fn observe(&self, record: &[u8]) {
        self.0.borrow_mut().push(record.to_vec());
    }

    fn want_whole(&mut self, _: SockId) {}

    fn status(&self) -> probe::Status {
        probe::Status::default()
    }

    fn nvml(&self) -> NvmlHealth {
        NvmlHealth::default()
    }
}

fn process(kind: Kind, tgid: u32) -> Vec<u8> {
    let len = u32::try_from(size_of::<Process>()).unwrap();
    let header = Header { abi: wire::ABI, kind: kind as u16, len, time_ns: 1, tgid, tid: tgid };
    Process { header, child: 0, row: 0, comm: *b"server\0\0\0\0\0\0\0\0\0\0" }.as_bytes().to_vec()
}

fn start() -> Observation {
    Observation::Start { agent: "0".into(), kernel: "6".into(), rows: Vec::new() }
}

/// What of the recording came from where, in order; clock observations left out.
fn names(recording: &[u8]) -> (Vec<String>, usize) {
    let (mut reader, mut record) = (Reader::new(recording).unwrap(), Vec::new());
    let (mut names, mut clocks) = (Vec::new(), 0);
    while reader.read(&mut record).unwrap() {
        match decode(&mut record) {
            Ok(Event::Observation(_, observation)) => match *observation {
                Observation::Clock { .. } => clocks += 1,
                Observation::Start { .. } => names.push("start".into()),
                Observation::End => names.push("end".into()),
                other => names.push(format!("{other:?}").split(' ').next().unwrap().to_owned()),
            },
            Ok(Event::Exec(p) | Event::Exit(p)) => names.push(p.header.tgid.to_string()),
            other => names.push(format!("{other:?}")),
        }
    }
    (names, clocks)
}

fn core(recording: &Path) -> (Core, Arc<Export>) {
    let recorder = Recorder::create(recording.into(), u64::MAX).unwrap();
    let settings = prometheus::Settings { max_series: 100, ..prometheus::Settings::default() };
    let export = Export::new(16, &settings);
    (Core::new(Pipeline::new(pipeline::Settings {}), recorder, Arc::clone(&export)), export)
}

/// The request records that a recording gives.
fn replayed(recording: &[u8]) -> String {
    let (mut reader, mut record) = (Reader::new(recording).unwrap(), Vec::new());
    let (mut pipeline, mut outputs) = (Pipeline::new(pipeline::Settings {}), Vec::new());
    while reader.read(&mut record).unwrap() {
        pipeline.process(&mut record, &mut outputs);
    }
    let line = |output: &Output| match output {
        Output::Request(record) => Some(json::line(record)),
        _ => None,
    };
    outputs.iter().filter_map(line).collect()
}

#[test]
fn a_replay_gives_the_bytes_of_the_live_run_and_a_recording_has_no_text() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r");
    let (core, export) = core(&path);
    let stop = Arc::new(AtomicBool::new(false));
    // A record of the ring buffer is longer than what it says; there is text of older ones behind that.
    let padded = |record| vec![[record, b"an older secret".to_vec()].concat()];
    let rounds = hand::one_request().into_iter().map(padded).collect();
    let ring = Script { rounds, observe: None, given: 0, stop: Arc::clone(&stop) };
    let (_to, observations) = sync_channel(1);
    Live::new(ring, Seen::default(), observations, core, Duration::ZERO).run(&start(), &stop).unwrap();

    let recording = std::fs::read(path).unwrap();
    let live = export.store.after(0, usize::MAX).lines.concat();
    assert_eq!(live.lines().count(), 1);
    assert_eq!(replayed(&recording), live);
    let text = String::from_utf8_lossy(&recording);
    assert!(text.contains("/v1/chat/completions") && text.contains("tiny"), "it is the right recording");
    assert!(!text.contains("secret"));
}

#[test]
fn records_are_processed_recorded_and_shown_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r");
    let (core, export) = core(&path);

    let (to, observations) = sync_channel(16);
    let gone = Observation::ProcessGone { pid: 9, start_ticks: 1 }.to_record(5);
    let rounds = vec![
        vec![process(Kind::Exec, 1), process(Kind::Exec, 2)],
        vec![],
        vec![process(Kind::Exit, 3), process(Kind::Exec, 4)],
    ];
    let stop = Arc::new(AtomicBool::new(false));
    let ring =
        Script { rounds: rounds.into(), observe: Some((3, to, gone)), given: 0, stop: Arc::clone(&stop) };
    let seen = Seen::default();
    let live = Live::new(ring, seen.clone(), observations, core, Duration::from_millis(1));
    let core = live.run(&start(), &stop).unwrap();

    let (names, clocks) = names(&std::fs::read(path).unwrap());
    assert_eq!(names, ["start", "1", "2", "3", "ProcessGone", "4", "end"]);
    assert!(clocks >= 1);
    assert_eq!(seen.0.borrow().len(), 4);
    let snapshot = export.snapshot.get().expect("published");
    assert_eq!(snapshot.recording.records, 7 + clocks as u64);
    assert_eq!(core.recorder.state().records, snapshot.recording.records);
}
