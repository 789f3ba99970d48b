//! A library of its own for each test, and the core behind the thread that asks it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, sync_channel},
    time::{Duration, Instant},
};

use agent::{
    decode::NvmlState,
    device::{Device, Devices},
    export::process::monotonic_ns,
    pipeline::{self, Pipeline},
    source::nvml::{Nvml, NvmlUnavailable, Settings},
};
use serde_json::{Value, json};

/// After this long what is waited for does not come.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long one look waits for an observation.
const LOOK: Duration = Duration::from_millis(20);

/// A folder with a copy of the library and the file that it reads.
pub(crate) struct Library(tempfile::TempDir);

impl Library {
    pub(crate) fn new(state: &Value) -> Self {
        let this = Self(tempfile::tempdir().unwrap());
        // Cargo puts it beside the tests of whoever depends on it.
        let built = std::env::current_exe().unwrap().with_file_name("libnvidia_ml.so");
        fs::copy(built, this.path()).unwrap();
        this.write(state);
        this
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().join("libnvidia-ml.so.1")
    }

    /// Replaces what the devices are.
    pub(crate) fn write(&self, state: &Value) {
        let new = self.0.path().join("new");
        fs::write(&new, state.to_string()).unwrap();
        fs::rename(new, self.0.path().join("fakenvml.json")).unwrap();
    }

    /// What was called so far, oldest first, each with the UUID of the device.
    pub(crate) fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.0.path().join("fakenvml.calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn count(&self, call: &str) -> usize {
        self.calls().iter().filter(|line| *line == call).count()
    }

    /// Until a thread that nobody waits for any more has closed it: then it reads the file no more.
    #[track_caller]
    pub(crate) fn until_closed(&self) {
        let end = Instant::now() + PATIENCE;
        while self.count("nvmlShutdown") == 0 {
            assert!(Instant::now() < end, "{:?}", self.calls());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Everything is done often, and nothing is waited for long.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            library: Some(self.path()),
            poll_interval: Duration::from_millis(20),
            slow_interval: Duration::from_millis(40),
            max_share: 1,
            retry: Duration::from_millis(20),
            max_retry: Duration::from_millis(40),
            patience: Duration::from_millis(300),
            ..Settings::default()
        }
    }
}

/// The thread, and the core that it tells.
pub(crate) struct Rig {
    /// Before the library: it reads the file until it has ended.
    pub(crate) nvml: Nvml,
    pub(crate) library: Library,
    observations: Receiver<Vec<u8>>,
    pipeline: Pipeline,
    /// Every record, in order.
    pub(crate) records: Vec<Vec<u8>>,
}

impl Rig {
    pub(crate) fn start(state: &Value) -> Self {
        let library = Library::new(state);
        let settings = library.settings();
        Self::with(library, settings).unwrap()
    }

    pub(crate) fn with(library: Library, settings: Settings) -> Result<Self, NvmlUnavailable> {
        let (to, observations) = sync_channel(1024);
        let nvml = Nvml::start(settings, to)?;
        let pipeline = Pipeline::new(pipeline::Settings {});
        Ok(Self { library, nvml, observations, pipeline, records: Vec::new() })
    }

    pub(crate) fn devices(&self) -> &Devices {
        self.pipeline.devices()
    }

    pub(crate) fn state(&self) -> NvmlState {
        self.devices().nvml().state
    }

    pub(crate) fn device(&self, uuid: &str) -> Option<&Device> {
        self.devices().iter().find(|device| device.seen().uuid == uuid)
    }

    /// Takes what is told until it is so.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, is_so: impl Fn(&Self, u64) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so(self, monotonic_ns()) {
            assert!(Instant::now() < end, "{what}: {:#?}\n{:#?}", self.devices(), self.nvml.health());
            if let Ok(record) = self.observations.recv_timeout(LOOK) {
                self.take(record);
            }
        }
    }

    /// Takes whole rounds of looks at everything: what was to be said is said.
    #[track_caller]
    pub(crate) fn rounds(&mut self, n: usize) {
        let before = self.library.count("nvmlDeviceGetCount_v2");
        self.until("rounds", |rig, _| rig.library.count("nvmlDeviceGetCount_v2") > before + n);
    }

    fn take(&mut self, record: Vec<u8>) {
        self.records.push(record.clone());
        let (mut record, mut out) = (record, Vec::new());
        self.pipeline.process(&mut record, &mut out);
        assert!(out.is_empty() && self.pipeline.health().failed.is_empty());
    }
}

/// A device with every number.
pub(crate) fn gpu(uuid: &str) -> Value {
    json!({
        "uuid": uuid, "name": "NVIDIA H200", "architecture": 9, "pci_bus_id": "00000000:1B:00.0",
        "memory": {"total": 150_000_000_000_u64, "reserved": 700_000_000, "used": 90_000_000_000_u64},
        "utilization": 87, "memory_utilization": 41, "temperature": 61, "power": 512_345, "power_limit": 700_000,
        "sm_clock": 1980, "memory_clock": 3201, "throttle": 0x4 | 0x1, "mig": {"enabled": false, "pending": false},
        "processes": [
            {"pid": std::process::id(), "memory": 60_000_000_000_u64},
            {"pid": u32::MAX, "memory": null},
            {"pid": 1, "memory": 5_000_000, "graphics": true},
        ],
    })
}

/// A host with these devices.
pub(crate) fn host(devices: &[Value]) -> Value {
    json!({"driver": "580.65.06", "cuda": 13000, "devices": devices})
}

/// `value` with the value at a JSON pointer, whose parent exists, replaced.
pub(crate) fn with(value: &Value, pointer: &str, new: Value) -> Value {
    let mut value = value.clone();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    value.pointer_mut(parent).unwrap().as_object_mut().unwrap().insert(name.to_owned(), new);
    value
}

/// The file has the name that the agent looks for in the folders of drivers.
pub(crate) fn is_found_below(root: &Path, library: &Library) -> bool {
    let folder = root.join("usr/lib64");
    fs::create_dir_all(&folder).unwrap();
    fs::copy(library.path(), folder.join("libnvidia-ml.so.1")).unwrap();
    agent::source::nvml::find(root) == Some(folder.join("libnvidia-ml.so.1"))
}
