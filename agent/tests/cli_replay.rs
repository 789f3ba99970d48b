//! The real binary over recordings made by hand.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use agent::{decode::Observation, source::recording::Writer};

fn replay(path: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stagelens")).arg("replay").arg(path).args(args).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    str::from_utf8(&output.stderr).unwrap()
}

fn recording(records: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, u64::MAX).unwrap();
    for record in records {
        writer.write(record).unwrap();
    }
    file
}

struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

fn frame() -> [Vec<u8>; 3] {
    let start = Observation::Start { agent: "0".into(), kernel: "6".into(), rows: Vec::new() };
    [start.to_record(1), Observation::Clock { wall_ns: 2 }.to_record(2), Observation::End.to_record(3)]
}

#[test]
fn what_is_not_a_recording_is_said_in_one_line() {
    let dir = Dir::new();
    let good = recording(&frame());
    let mut other_abi = good.clone();
    other_abi[8] = 99;
    let mut later = good.clone();
    later[7] = 9;
    for (name, bytes, want) in [
        ("text", &b"this is not a recording"[..], "not a stagelens recording"),
        ("empty", b"", "not a stagelens recording"),
        ("abi", &other_abi, "records of ABI 99, this agent reads ABI"),
        ("version", &later, "format version 9, this agent reads version 1"),
    ] {
        let path = dir.file(name, bytes);
        for args in [&[][..], &["--json"]] {
            let output = replay(&path, args);
            assert_eq!(output.status.code(), Some(1), "{name}");
            let message = stderr(&output);
            assert!(
                message.starts_with(&format!("stagelens: cannot replay {}: ", path.display())),
                "{message}"
            );
            assert!(message.contains(want) && message.lines().count() == 1, "{message}");
            assert_eq!(stdout(&output), "");
        }
    }
    let output = replay(Path::new("/nonexistent/r"), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("No such file"), "{}", stderr(&output));
}

#[test]
fn a_truncated_recording_is_used_up_to_the_cut_and_said() {
    let dir = Dir::new();
    let mut bytes = recording(&frame());
    bytes.truncate(bytes.len() - 1);
    let output = replay(&dir.file("cut", &bytes), &[]);
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(
        message.contains("ends inside record 2") && message.contains("the 2 records before it are complete")
    );
    assert!(stdout(&output).contains("0 requests"), "{}", stdout(&output));
}
