//! `doctor`: what this host allows, and what each gap costs. Reads only; attaches nothing.

mod older;

use std::{fs, path::Path};

use serde::Serialize;

use super::{
    attach::TRACEPOINTS,
    btf::{Btf, VMLINUX},
    error::chain,
    hazards::{self, Decision, Facts, KernelVersion},
    object::BPF_OBJECT,
    prologue::Instruction,
    session::{Settings, in_host_pid_namespace, running_kernel},
    targets::{Kind, mapped, open_library},
    tier::Tier,
};
use crate::source::{nvml, procfs::ProcFs};

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// As it should be.
    Ok,
    /// Something is lost.
    Warn,
    /// Nothing works without it.
    Fail,
}

/// One thing about the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was checked.
    pub name: &'static str,
    /// How it went.
    pub grade: Grade,
    /// What was found.
    pub found: String,
    /// What is lost, when something is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub costs: Option<String>,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, grade: Grade::Ok, found: found.into(), costs: None, remedy: None }
    }

    fn bad(name: &'static str, grade: Grade, found: impl Into<String>, costs: &str, remedy: &str) -> Self {
        Self {
            name,
            grade,
            found: found.into(),
            costs: Some(costs.to_owned()),
            remedy: Some(remedy.to_owned()),
        }
    }
}

/// Capability numbers of Linux, and what each is for.
const CAPABILITIES: [(u32, &str, &str, Grade); 4] = [
    (39, "CAP_BPF", "programs cannot be loaded", Grade::Fail),
    (38, "CAP_PERFMON", "programs cannot be attached", Grade::Fail),
    (
        19,
        "CAP_SYS_PTRACE",
        "processes of other users cannot be looked at, so their services are not found",
        Grade::Warn,
    ),
    (2, "CAP_DAC_READ_SEARCH", "libraries below other users' folders cannot be opened", Grade::Warn),
];
/// Holds all of the above that matter for BPF.
const CAP_SYS_ADMIN: u32 = 21;
/// Opens `/proc/PID/map_files`, as `CAP_SYS_ADMIN` does.
const CAP_CHECKPOINT_RESTORE: u32 = 40;

/// Checks the host.
pub fn doctor(settings: &Settings) -> Vec<Check> {
    let kernel = running_kernel();
    let btf = Btf::vmlinux();
    let capabilities = effective_capabilities(Path::new("/proc/self/status"));
    let mut checks = vec![object(), kernel_version(kernel.as_ref().ok().copied()), pid_namespace()];
    checks.extend(capability_checks(capabilities));
    checks.push(map_files(capabilities));
    checks.push(match &btf {
        Ok(btf) => type_information(btf),
        Err(error) => Check::bad(
            "kernel type information",
            Grade::Warn,
            chain(error),
            "addresses, ports and namespaces of connections are unknown; connections cannot be told accepted from connected",
            "use a kernel built with CONFIG_DEBUG_INFO_BTF",
        ),
    });
    if let Ok(btf) = &btf {
        let (tier, check) = socket_tier(settings, btf);
        checks.extend([check, tracepoints(tier, btf), older::check(btf)]);
    }
    checks.push(uprobes(capabilities));
    checks.extend(kernel.ok().map(return_probes));
    checks.push(lockdown());
    checks.push(mounts());
    checks.push(drivers(settings));
    checks
}

fn object() -> Check {
    if BPF_OBJECT.is_empty() {
        return Check::bad(
            "BPF programs",
            Grade::Fail,
            "this binary was built without them",
            "nothing can be attached; replay works",
            "run `cargo xtask setup` and build again",
        );
    }
    Check::ok("BPF programs", format!("{} KiB in this binary", BPF_OBJECT.len() / 1024))
}

fn kernel_version(kernel: Option<KernelVersion>) -> Check {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    match kernel {
        Some(kernel) if kernel >= KernelVersion::new(6, 3, 0) => Check::ok("kernel", release),
        Some(kernel) if kernel >= KernelVersion::new(5, 15, 0) => Check::bad(
            "kernel",
            Grade::Warn,
            release,
            &format!("{}; blind to {}", Tier::B.cost(), Tier::B.blind_spots()),
            "use Linux 6.3 or later, which has the tracepoints of tier A",
        ),
        _ => Check::bad("kernel", Grade::Fail, release, "nothing can be attached", "use Linux 6.3 or later"),
    }
}

fn pid_namespace() -> Check {
    if in_host_pid_namespace() {
        return Check::ok("PID namespace", "the host's");
    }
    Check::bad(
        "PID namespace",
        Grade::Fail,
        "one of its own",
        "processes cannot be told apart",
        "run on the host, with `--pid=host`, or with `hostPID: true`",
    )
}

/// The effective set as a bit mask; 0 when it cannot be read.
fn effective_capabilities(status: &Path) -> u64 {
    let text = fs::read_to_string(status).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

const fn holds(capabilities: u64, number: u32) -> bool {
    capabilities >> number & 1 != 0
}

fn capability_checks(capabilities: u64) -> impl Iterator<Item = Check> {
    CAPABILITIES.into_iter().map(move |(number, name, costs, grade)| {
        // Before they were split off, CAP_SYS_ADMIN held the first two, and still does.
        let implied = number >= 38 && holds(capabilities, CAP_SYS_ADMIN);
        if holds(capabilities, number) || implied {
            return Check::ok(name, if implied { "held, through CAP_SYS_ADMIN" } else { "held" });
        }
        Check::bad(name, grade, "missing", costs, "run as root, or add the capability")
    })
}

fn map_files(capabilities: u64) -> Check {
    if holds(capabilities, CAP_SYS_ADMIN) || holds(capabilities, CAP_CHECKPOINT_RESTORE) {
        return Check::ok("mapped files", "can be opened directly");
    }
    Check::bad(
        "mapped files",
        Grade::Warn,
        "only by their path",
        "a driver that was replaced or deleted while mapped is not attached to",
        "add CAP_CHECKPOINT_RESTORE",
    )
}

fn type_information(btf: &Btf) -> Check {
    match btf.socket_offsets() {
        Ok(_) => Check::ok("kernel type information", VMLINUX),
        Err(error) => Check::bad(
            "kernel type information",
            Grade::Warn,
            chain(&error),
            "addresses, ports and namespaces of connections are unknown",
            "report this with the kernel's name",
        ),
    }
}

/// The tier that `auto` or the configuration gives, and what is to be said of it.
fn socket_tier(settings: &Settings, btf: &Btf) -> (Tier, Check) {
    let name = "socket calls";
    match Tier::pick(settings.socket_tier, Some(btf), &btf.socket_offsets().unwrap_or_default()) {
        Ok(tier) => {
            let found = format!("{}: costs {}; blind to {}", tier.name(), tier.cost(), tier.blind_spots());
            (tier, Check::ok(name, found))
        }
        Err(error) => {
            let check = Check::bad(
                name,
                Grade::Fail,
                chain(&error),
                "the agent does not start",
                "set socket.tier to \"auto\"",
            );
            (Tier::A, check)
        }
    }
}

fn tracepoints(tier: Tier, btf: &Btf) -> Check {
    let wanted = || TRACEPOINTS.iter().filter(|point| !tier.excludes(point.program)).map(|point| point.name);
    let absent: Vec<&str> = wanted().filter(|name| !btf.has_tracepoint(name)).collect();
    if absent.is_empty() {
        return Check::ok("tracepoints", format!("all {} are there", wanted().count()));
    }
    let socket = absent.iter().any(|name| name.starts_with("sock_") || *name == "sys_exit");
    Check::bad(
        "tracepoints",
        Grade::Warn,
        format!("not in this kernel: {}", absent.join(", ")),
        if socket { "requests are not seen" } else { "processes are noticed only by the next scan" },
        "use Linux 6.3 or later",
    )
}

/// Whether this kernel is one of those that ask for `CAP_SYS_ADMIN` cannot be told: the fix of CVE-2025-38466 went
/// into 6.16 and, in July 2025, into all stable series from 5.10 on.
fn uprobes(capabilities: u64) -> Check {
    let path = "/sys/bus/event_source/devices/uprobe/type";
    match fs::read_to_string(path) {
        Ok(_) if holds(capabilities, CAP_SYS_ADMIN) => Check::ok("uprobes", "available"),
        Ok(_) => Check::bad(
            "uprobes",
            Grade::Fail,
            "CAP_SYS_ADMIN is missing, which kernels since July 2025 ask for",
            "CUDA calls are not seen",
            "run as root, or add CAP_SYS_ADMIN",
        ),
        Err(error) => Check::bad(
            "uprobes",
            Grade::Fail,
            format!("{path}: {error}"),
            "CUDA calls are not seen",
            "use a kernel built with CONFIG_UPROBE_EVENTS, and mount /sys",
        ),
    }
}

/// The hazard table asked about an ordinary function's return.
fn return_probes(kernel: KernelVersion) -> Check {
    let facts = Facts {
        kernel,
        x86_64: cfg!(target_arch = "x86_64"),
        returns: true,
        instruction: Instruction::Push,
        stack_bytes: None,
        go: false,
    };
    match hazards::check(&facts) {
        Decision::Attach => Check::ok("return probes", "no known hazard on this kernel"),
        Decision::Refuse(sentence) => Check::bad(
            "return probes",
            Grade::Warn,
            sentence,
            "they are not attached, so GPU steps, memory calls and requests over TLS are not seen",
            "update the kernel",
        ),
    }
}

fn lockdown() -> Check {
    let Ok(text) = fs::read_to_string("/sys/kernel/security/lockdown") else {
        return Check::ok(
            "kernel lockdown",
            "cannot be seen (no securityfs); `run` says if it is in the way",
        );
    };
    if text.contains("[confidentiality]") {
        return Check::bad(
            "kernel lockdown",
            Grade::Fail,
            "confidentiality",
            "programs may not read memory of processes",
            "boot with lockdown=integrity or none",
        );
    }
    Check::ok("kernel lockdown", text.trim())
}

/// Not needed: uprobes are attached through perf events, tracepoints by name, and nothing is pinned. Said because
/// other tools need them and people look here first.
fn mounts() -> Check {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let has = |kind: &str| mounts.lines().any(|line| line.split(' ').nth(2) == Some(kind));
    let word = |there: bool| if there { "mounted" } else { "not mounted" };
    let found = format!("tracefs {}, bpffs {}; neither is needed", word(has("tracefs")), word(has("bpf")));
    Check::ok("tracefs and bpffs", found)
}

fn drivers(settings: &Settings) -> Check {
    let procfs = ProcFs::default();
    let (mut users, mut failure) = (0usize, None);
    for pid in procfs.pids().unwrap_or_default() {
        let exe = procfs.exe(pid).unwrap_or_default();
        for mapping in mapped(&procfs, pid, &exe).unwrap_or_default().cuda {
            match open_library(Kind::Cuda, &procfs, pid, &mapping) {
                Ok(Some(_)) => users += 1,
                Ok(None) => {}
                Err(error) => failure = Some(chain(&error)),
            }
        }
    }
    let name = "CUDA processes";
    match (users, failure) {
        (_, Some(failure)) => Check::bad(
            name,
            Grade::Warn,
            failure,
            "this process's GPU work is not seen",
            "check that the agent runs on the host and may read the file",
        ),
        (0, None) if settings.pids.is_empty() => Check::ok(name, "none now; they are found when they start"),
        (users, None) => Check::ok(name, format!("{users} map a CUDA driver")),
    }
}

/// Whether there is a library to ask NVML through: `given` by the configuration, or where drivers put it. It is not
/// opened, which would hold the driver.
pub fn doctor_nvml(given: Option<&Path>) -> Check {
    let name = "NVML";
    let found =
        given.map_or_else(|| nvml::find(Path::new("/")), |path| path.exists().then(|| path.to_owned()));
    match found {
        Some(path) => Check::ok(name, path.display().to_string()),
        None => Check::bad(
            name,
            Grade::Warn,
            given.map_or("no libnvidia-ml.so.1 in the folders of drivers".into(), |path| {
                format!("{} does not exist", path.display())
            }),
            "which GPUs there are, how they fare and who else is on them is not known",
            "install the driver's NVML library, or name it in gpu.nvml_library",
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn every_check_is_complete() {
        let checks = doctor(&Settings::default());
        assert!(checks.len() >= 12);
        for check in checks {
            let bad = check.grade != Grade::Ok;
            assert_eq!((check.costs.is_some(), check.remedy.is_some()), (bad, bad), "{}", check.name);
        }
    }

    #[test]
    fn a_library_that_the_configuration_names_must_be_there() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(doctor_nvml(Some(file.path())).grade, Grade::Ok);
        let missing = doctor_nvml(Some(Path::new("/nonexistent/libnvidia-ml.so.1")));
        assert_eq!((missing.grade, missing.costs.is_some()), (Grade::Warn, true));
        assert!(missing.found.contains("/nonexistent/"), "{}", missing.found);
    }

    #[test]
    fn capabilities_are_read_and_implied() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "Name:\tx\nCapEff:\t0000000000200000").unwrap();
        let capabilities = effective_capabilities(file.path());
        let grades: Vec<Grade> = capability_checks(capabilities).map(|check| check.grade).collect();
        assert_eq!(grades, [Grade::Ok, Grade::Ok, Grade::Warn, Grade::Warn]);
        assert_eq!(map_files(capabilities).grade, Grade::Ok);
        assert!(capability_checks(0).take(2).all(|check| check.grade == Grade::Fail));
        assert_eq!(map_files(1 << CAP_CHECKPOINT_RESTORE).grade, Grade::Ok);
        assert_eq!(uprobes(!(1 << CAP_SYS_ADMIN)).grade, Grade::Fail);
    }
}
