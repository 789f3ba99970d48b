//! The real binary: exit codes and messages that need neither root nor a running agent.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::{
    io::Write as _,
    net::TcpListener,
    path::Path,
    process::{Command, Output},
};

fn stagelens(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stagelens")).args(args).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    str::from_utf8(&output.stderr).unwrap()
}

fn config(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[test]
fn a_bad_config_ends_every_command_that_reads_it_with_64_and_names_the_key() {
    let file = config("[ring]\nsize_bytes = 1000\n");
    let path = file.path().to_str().unwrap();
    let recording = Path::new(path).with_extension("slrec");
    let commands: [&[&str]; 5] = [
        &["run"],
        &["record", recording.to_str().unwrap()],
        &["doctor"],
        &["check", "--strict"],
        &["config", "show"],
    ];
    for command in commands {
        let output = stagelens(&[command, &["--config", path]].concat());
        assert_eq!(output.status.code(), Some(64), "{command:?}: {}", stderr(&output));
        let want = "stagelens: config key `ring.size_bytes` cannot be 1000; allowed: a power of two from 65536 to \
                    1073741824\n";
        assert_eq!(stderr(&output), want);
        assert_eq!(stdout(&output), "");
    }
    assert!(!recording.exists(), "nothing is written before the config is good");
}

#[test]
fn other_mistakes_in_a_config_are_64_too() {
    for (text, want) in [
        (
            "[ring]\nsize = 1\n",
            "config key `ring.size` does not exist; keys in that section: ring.size_bytes",
        ),
        ("listen = \n", "is not valid TOML: TOML parse error at line 1"),
    ] {
        let file = config(text);
        let output = stagelens(&["config", "show", "--config", file.path().to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(64));
        assert!(stderr(&output).contains(want), "{}", stderr(&output));
    }
    let output = stagelens(&["run", "--config", "/nonexistent/stagelens.toml"]);
    assert_eq!(output.status.code(), Some(64));
    let want =
        "stagelens: cannot read the config file /nonexistent/stagelens.toml: No such file or directory";
    assert!(stderr(&output).starts_with(want), "{}", stderr(&output));
}

#[test]
fn wrong_usage_is_2_and_help_is_0() {
    let wrong: [&[&str]; 6] = [
        &[],
        &["nonsense"],
        &["run", "--nonsense"],
        &["run", "--port", "70000"],
        &["run", "--pid", "0"],
        &["run", "--listen", "nowhere"],
    ];
    for args in wrong {
        let output = stagelens(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains("Usage") || stderr(&output).contains("--help"), "{args:?}");
    }
    let output = stagelens(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).contains("64 bad config"), "{}", stdout(&output));
}

#[test]
fn flags_come_before_the_file_and_the_result_can_be_read_back() {
    let file = config("listen = \"127.0.0.1:1\"\n[discovery]\nports = [80]\nscan_interval = \"5s\"\n");
    let path = file.path().to_str().unwrap();
    let args = ["config", "show", "--config", path, "--listen", "[::1]:7", "--pid", "4", "--pid", "5"];
    let output = stagelens(&args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let shown = stdout(&output);
    for line in ["listen = \"[::1]:7\"", "pids = [4, 5]", "ports = [80]", "scan_interval = \"5s\""] {
        assert!(shown.lines().any(|l| l == line), "{line} is not in\n{shown}");
    }
    let again = config(shown);
    let output = stagelens(&["config", "show", "--config", again.path().to_str().unwrap()]);
    assert_eq!(stdout(&output), shown);
}

#[test]
fn an_address_in_use_is_named_and_69() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = stagelens(&["run", "--listen", &address]);
    assert_eq!(output.status.code(), Some(69), "{}", stderr(&output));
    let want = format!(
        "stagelens: cannot listen on {address} (flag --listen, config key `listen`): Address already"
    );
    assert!(stderr(&output).contains(&want), "{}", stderr(&output));
}

#[test]
fn a_recording_that_cannot_be_made_is_named_and_69() {
    let output = stagelens(&["record", "/nonexistent/r.slrec", "--seconds", "1"]);
    assert_eq!(output.status.code(), Some(69), "{}", stderr(&output));
    let want = "stagelens: cannot write the recording /nonexistent/r.slrec: No such file or directory";
    assert!(stderr(&output).contains(want), "{}", stderr(&output));
}

#[test]
fn a_required_nvml_that_cannot_be_had_is_named_and_69() {
    let file = config("[gpu]\nnvml = \"on\"\nnvml_library = \"/nonexistent/libnvidia-ml.so.1\"\n");
    let path = file.path().to_str().unwrap();
    let output = stagelens(&["run", "--config", path, "--listen", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(69), "{}", stderr(&output));
    let want =
        "stagelens: NVML cannot be used, and gpu.nvml = \"on\" asks for it: /nonexistent/libnvidia-ml.so.1: ";
    assert!(stderr(&output).contains(want), "{}", stderr(&output));
}

#[test]
fn an_agent_that_does_not_run_is_a_sentence_and_69() {
    // Bound and not listening: nobody else can take the port, and a connection is refused.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for command in [&["requests", "--json"][..], &["requests", "--follow"], &["requests"], &["gpu"]] {
        let url = format!("http://127.0.0.1:{port}");
        let output = stagelens(&[command, &["--url", &url]].concat());
        assert_eq!(output.status.code(), Some(69), "{}", stderr(&output));
        let want = format!("stagelens: cannot reach the agent at {url}; is `stagelens run` running there?");
        assert!(stderr(&output).starts_with(&want), "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
    }
}
