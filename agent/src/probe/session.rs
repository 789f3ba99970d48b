//! One run of the attaching side: load, attach, discover; dropping it removes everything.

use std::{
    collections::BTreeSet,
    fs,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::SyncSender,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use aya::maps::{HashMap, MapData};
use wire::socket::{Offsets, SockId};

use super::{
    attach::{self, Maps, Options},
    btf::Btf,
    discovery::{Discovery, Hints, KernelMaps, Parts, WayMaps, group::Wanted},
    error::{ProbeError, chain},
    hazards::KernelVersion,
    object::BPF_OBJECT,
    status::Status,
    tier::{SocketTier, Tier},
    verdict::State,
};
use crate::source::{procfs::ProcFs, ring::RingSource};

/// Inode of the host's PID namespace, the same on every Linux.
const HOST_PID_NAMESPACE: &str = "pid:[4026531836]";
/// Oldest kernel that works.
const OLDEST: KernelVersion = KernelVersion::new(5, 15, 0);

/// Whether arrival and delivery are seen on the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkTiming {
    /// Where the kernel allows it; otherwise a verdict says what is lost.
    #[default]
    Auto,
    /// Or fail.
    On,
    /// Not attached.
    Off,
}

/// Whether plaintext of TLS is seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tls {
    /// Wherever a watched process uses a library that can be attached to.
    #[default]
    Auto,
    /// Nothing is attached: connections that speak TLS are opaque.
    Off,
}

/// What to watch, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Only the services of these processes, GPU or not; empty: every GPU service.
    pub pids: Vec<u32>,
    /// Only the services that listen on these ports, GPU or not.
    pub ports: Vec<u16>,
    /// Least time between two looks at all processes.
    pub scan_interval: Duration,
    /// Size of the ring buffer; rounded up to a power of two.
    pub ring_bytes: u32,
    /// Which hooks see socket calls.
    pub socket_tier: SocketTier,
    /// Whether arrival and delivery are seen on the network.
    pub network_timing: NetworkTiming,
    /// Whether plaintext of TLS is seen.
    pub tls: Tls,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            pids: Vec::new(),
            ports: Vec::new(),
            scan_interval: Duration::from_secs(1),
            // Mapped twice by design, and all of it counts as resident: 16 MiB of the memory budget.
            ring_bytes: 8 << 20,
            socket_tier: SocketTier::Auto,
            network_timing: NetworkTiming::Auto,
            tls: Tls::Auto,
        }
    }
}

/// The running attaching side.
#[derive(Debug)]
pub struct Session {
    status: Arc<Mutex<Status>>,
    stopped: Arc<AtomicBool>,
    hints: Hints,
    thread: Option<JoinHandle<()>>,
    whole_calls: HashMap<MapData, u64, u64>,
}

impl Session {
    /// Loads the programs and starts to look for services. Observations are sent without ever blocking; a receiver
    /// that falls behind gets them later.
    pub fn start(
        settings: &Settings,
        observations: SyncSender<Vec<u8>>,
    ) -> Result<(Self, RingSource), ProbeError> {
        let kernel = check_host()?;
        let ring_bytes = ring_size(settings.ring_bytes);
        let network_timing = settings.network_timing != NetworkTiming::Off;
        let btf = btf();
        let offsets = offsets(btf.as_ref());
        let tier = Tier::pick(settings.socket_tier, btf.as_ref(), &offsets)?;
        let watch_all = settings.pids.is_empty() && settings.ports.is_empty();
        let options = Options { ring_bytes, offsets, kernel, network_timing, tier, watch_all };
        let (attacher, maps) = attach::load(BPF_OBJECT, &options)?;
        let mut status = Status {
            ring_bytes,
            socket: tier.into(),
            probes: attacher.verdicts(),
            verified_instructions: attacher.verified_instructions(),
            ..Status::default()
        };
        status.judge_readiness();
        check_wanted(settings, tier, &status)?;
        let Maps { ring, scope, listen, ports, counters, whole_calls, fallback, nesting, nesting_count } =
            maps;
        let ring = RingSource::new(ring).map_err(ProbeError::Ring)?;
        let (hints, receiver) = Hints::channel();
        let status = Arc::new(Mutex::new(status));
        let stopped = Arc::new(AtomicBool::new(false));
        let discovery = Discovery::new(Parts {
            procfs: ProcFs::default(),
            attacher,
            maps: KernelMaps { scope, listen, ports, counters },
            ways: WayMaps { fallback, nesting, nesting_count },
            observations,
            wanted: wanted(settings),
            tls: settings.tls == Tls::Auto,
            interval: settings.scan_interval,
            status: Arc::clone(&status),
            stopped: Arc::clone(&stopped),
            hints: hints.clone(),
        });
        let thread = thread::Builder::new()
            .name("discovery".to_owned())
            .spawn(move || discovery.run(&receiver))
            .map_err(ProbeError::Thread)?;
        let session = Self { status, stopped, hints, thread: Some(thread), whole_calls };
        Ok((session, ring))
    }

    /// State at this moment.
    pub fn status(&self) -> Status {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            status.ready = false;
            status
                .missing
                .push("the discovery thread has ended: restart the agent, and report this".to_owned());
        }
        status
    }

    /// Captures long calls on a socket whole from now on, until it closes or [`wire::names::WHOLE_CALLS`] is full of
    /// newer ones.
    pub fn want_whole(&mut self, socket: SockId) {
        if let Err(error) = self.whole_calls.insert(socket.sock, socket.birth_ns, 0) {
            tracing::debug!(%error, "long calls of a connection stay cut");
        }
    }

    /// Where the reader of the ring buffer reports what it reads: pass every record to [`Hints::observe`], so that new
    /// processes are found at once.
    pub fn hints(&self) -> Hints {
        self.hints.clone()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        // A full queue refuses the message, but then the thread is about to wake anyway and sees the flag.
        let _wakes_by_itself = self.hints.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the discovery thread panicked");
        }
    }
}

/// Checks what no program can work without.
pub(super) fn check_host() -> Result<KernelVersion, ProbeError> {
    if BPF_OBJECT.is_empty() {
        return Err(ProbeError::NoObject);
    }
    let kernel = running_kernel()?;
    if kernel < OLDEST {
        return Err(ProbeError::KernelTooOld(kernel));
    }
    if !in_host_pid_namespace() {
        return Err(ProbeError::PidNamespace);
    }
    Ok(kernel)
}

pub(super) fn running_kernel() -> Result<KernelVersion, ProbeError> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    KernelVersion::parse(&release).ok_or(ProbeError::KernelUnknown(release))
}

pub(super) fn in_host_pid_namespace() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.to_str() == Some(HOST_PID_NAMESPACE))
}

/// Type information; without it some things stay unknown.
fn btf() -> Option<Btf> {
    let warn =
        |error| tracing::warn!(error = chain(&error), "addresses and ports of connections will be unknown");
    Btf::vmlinux().map_err(warn).ok()
}

/// Without them, addresses, ports and namespaces of connections stay unknown, and there is no tier B; all else works.
fn offsets(btf: Option<&Btf>) -> Offsets {
    let warn =
        |error| tracing::warn!(error = chain(&error), "addresses and ports of connections will be unknown");
    btf.and_then(|btf| btf.socket_offsets().map_err(warn).ok()).unwrap_or_default()
}

/// The kernel takes powers of two, and at least a page.
fn ring_size(bytes: u32) -> u32 {
    bytes.clamp(64 << 10, 1 << 30).next_power_of_two()
}

/// Fails where what was asked for by name is not attached.
fn check_wanted(settings: &Settings, tier: Tier, status: &Status) -> Result<(), ProbeError> {
    if settings.socket_tier != SocketTier::Auto
        && let Some(reason) = tier.programs().iter().find_map(|program| why_not_attached(program, status))
    {
        return Err(ProbeError::SocketTier { tier: tier.name(), reason });
    }
    let is_timing_wanted = settings.network_timing == NetworkTiming::On;
    match why_not_attached(wire::names::PROG_SEGMENT, status).filter(|_| is_timing_wanted) {
        Some(reason) => Err(ProbeError::NetworkTiming(reason)),
        None => Ok(()),
    }
}

fn why_not_attached(program: &str, status: &Status) -> Option<String> {
    let probe = status.probes.iter().find(|probe| probe.program == program);
    if probe.is_some_and(|probe| probe.state == State::Attached) {
        return None;
    }
    let reason = probe.and_then(|probe| probe.reason.clone());
    Some(reason.unwrap_or_else(|| format!("{program} is not attached")))
}

fn wanted(settings: &Settings) -> Wanted {
    Wanted {
        pids: settings.pids.iter().copied().collect(),
        ports: settings.ports.iter().copied().collect::<BTreeSet<u16>>(),
        own: std::process::id(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_sizes_are_what_the_kernel_takes() {
        for (asked, given) in [(0, 64 << 10), (1 << 20, 1 << 20), (3 << 20, 4 << 20), (u32::MAX, 1 << 30)] {
            assert_eq!(ring_size(asked), given);
        }
    }

    #[test]
    fn a_binary_without_programs_says_how_to_get_them() {
        if !BPF_OBJECT.is_empty() {
            println!("skipped: this binary has its BPF programs");
            return;
        }
        let (sender, _receiver) = std::sync::mpsc::sync_channel(1);
        let error = Session::start(&Settings::default(), sender).unwrap_err();
        assert!(error.to_string().contains("cargo xtask setup"), "{error}");
    }
}
