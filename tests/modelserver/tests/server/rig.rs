//! A server process on its own simulated device, and its truth lines.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::client::Client;

/// All shapes.
pub(crate) const SHAPES: [&str; 6] = ["single", "split", "chain", "sharded", "proxied", "shm"];
const LIMIT: Duration = Duration::from_mins(1);

/// A running server. Killed when dropped.
pub(crate) struct Rig {
    server: Child,
    folder: PathBuf,
    /// Where it listens.
    pub(crate) port: u16,
}

fn library() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_BIN_EXE_modelserver")).parent()?.parent()?;
    let built = ["debug", "release"].map(|profile| target.join(profile).join("libcuda.so"));
    std::env::var_os("LIBCUDA").map(PathBuf::from).into_iter().chain(built).find(|path| path.exists())
}

/// Asks until there is an answer, for things that the outside cannot wait on otherwise.
fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl Rig {
    /// Starts a server; `None`, with the reason on standard error, without the driver library.
    pub(crate) fn start(shape: &str, name: &str, extra: &[&str]) -> Option<Self> {
        let Some(library) = library() else {
            eprintln!("skipped: no libcuda.so; run `cargo build -p fakecuda` or set LIBCUDA");
            return None;
        };
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("modelserver-{name}-{shape}"));
        drop(std::fs::remove_dir_all(&folder));
        std::fs::create_dir_all(&folder).unwrap();
        let mut server = Command::new(env!("CARGO_BIN_EXE_modelserver"))
            .args(["--shape", shape, "--libcuda"])
            .arg(library)
            .arg("--port-file")
            .arg(folder.join("port"))
            .arg("--truth")
            .arg(folder.join("truth.jsonl"))
            .args(extra)
            .env("FAKECUDA_SHM", folder.join("device"))
            .spawn()
            .unwrap();
        let port = until("the port file", || {
            assert!(server.try_wait().unwrap().is_none(), "the server ended early");
            std::fs::read_to_string(folder.join("port")).ok()
        });
        Some(Self { server, folder, port: port.trim().parse().unwrap() })
    }

    /// A new connection.
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.port)
    }

    /// Waits until a metric has this value.
    pub(crate) fn wait_for_metric(&self, name: &str, value: u64) {
        let line = format!("{name} {value}\n");
        let mut client = self.client();
        until(&line, || {
            let metrics = client.ask("GET /metrics HTTP/1.1\r\n\r\n").chunks.concat();
            metrics.contains(&line).then_some(())
        });
    }

    fn kill(id: u32, signal: Signal) {
        let pid = Pid::from_raw(id.try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// The processes that the server has started.
    pub(crate) fn children(&self) -> Vec<u32> {
        let id = self.server.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        children.split_whitespace().map(|child| child.parse().unwrap()).collect()
    }

    /// Kills the engine process of a split server.
    pub(crate) fn kill_engine(&self) {
        Self::kill(self.children()[0], Signal::KILL);
    }

    /// Waits for the end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        until("the end of the server", || self.server.try_wait().unwrap())
    }

    /// Asks the server to end and returns what it wrote, by request.
    pub(crate) fn stop(mut self) -> BTreeMap<String, Line> {
        Self::kill(self.server.id(), Signal::TERM);
        assert!(self.wait().success());
        self.lines()
    }

    /// The truth lines by request id (empty where there was none).
    pub(crate) fn lines(&self) -> BTreeMap<String, Line> {
        let text = std::fs::read_to_string(self.folder.join("truth.jsonl")).unwrap();
        let lines = text.lines().map(|line| Line(serde_json::from_str(line).unwrap()));
        lines.map(|line| (line.0["request_id"].as_str().unwrap_or_default().to_owned(), line)).collect()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Errors mean that it has ended.
        drop(self.server.kill());
        drop(self.server.wait());
    }
}

/// A truth line.
#[derive(Debug)]
pub(crate) struct Line(Value);

impl Line {
    /// A number.
    pub(crate) fn number(&self, name: &str) -> f64 {
        self.0[name].as_f64().unwrap_or_else(|| panic!("{name} in {:?}", self.0))
    }

    /// A text.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap()
    }

    /// A whole number.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.0[name].as_u64().unwrap_or_else(|| panic!("{name} in {:?}", self.0))
    }

    /// A list of whole numbers.
    pub(crate) fn counts(&self, name: &str) -> Vec<u64> {
        self.0[name].as_array().unwrap().iter().map(|value| value.as_u64().unwrap()).collect()
    }

    /// A list of clock readings before and after.
    pub(crate) fn pairs(&self, name: &str) -> Vec<(f64, f64)> {
        let pair = |value: &Value| (value[0].as_f64().unwrap(), value[1].as_f64().unwrap());
        self.0[name].as_array().unwrap().iter().map(pair).collect()
    }

    /// Clock readings before and after.
    pub(crate) fn pair(&self, name: &str) -> (f64, f64) {
        let value = &self.0[name];
        (value[0].as_f64().unwrap(), value[1].as_f64().unwrap())
    }

    /// A request that got tokens: stamps in order, stages not negative and adding up to e2e within 1 us.
    pub(crate) fn check(&self) {
        self.check_order();
        let names = ["network_in_s", "preprocess_s", "queue_s", "prefill_s", "decode_s", "postprocess_s"];
        let stages = names.map(|name| self.number(name));
        assert!(stages.iter().all(|&stage| stage >= 0.0), "{self:?}");
        assert!((stages.iter().sum::<f64>() - self.number("e2e_s")).abs() < 1e-6, "{self:?}");
        let span = (self.pair("t_last_write_ns").1 - self.pair("t_first_read_ns").1) / 1e9;
        assert!((span - self.number("e2e_s")).abs() < 1e-6, "{self:?}");
        assert_eq!(self.counts("batch_sizes").len() as u64, self.count("steps"));
        assert_eq!(self.counts("tokens_per_write").len(), self.pairs("content_write_ns").len());
    }

    fn check_order(&self) {
        let at = |name: &str| (self.number(name), self.number(name));
        let mut order = vec![
            self.pair("t_first_read_ns"),
            self.pair("t_last_read_ns"),
            at("t_handoff_ns"),
            at("t_sched_ns"),
            self.pair("t_first_launch_ns"),
            self.pair("t_first_result_ns"),
            self.pair("t_last_result_ns"),
            self.pair("t_last_write_ns"),
        ];
        // By their ends: a wait for a result may begin before the call in front of it here has returned.
        assert!(order.iter().all(|pair| pair.0 <= pair.1), "{self:?}");
        assert!(order.is_sorted_by(|a, b| a.1 <= b.1), "{self:?}");
        order = self.pairs("content_write_ns");
        assert!(order.is_sorted_by(|a, b| a.1 <= b.0), "{self:?}");
        if let Some(first) = order.first() {
            assert_eq!(*first, self.pair("t_first_token_write_ns"));
            assert!(
                self.pair("t_first_byte_write_ns").1 <= first.0
                    && first.0 >= self.pair("t_first_result_ns").1
            );
        }
    }
}
