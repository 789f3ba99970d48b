//! System tests: the agent as a user runs it, real probes, real sockets, and servers that know the truth.
//!
//! They need root and BPF; without, each is skipped with the reason. They run one after the other, since they share
//! the kernel and the cores. Each leaves its files in `target/system/<name>`.

mod accuracy;
mod churn;
mod commands;
mod contention;
mod counts;
mod cuda;
mod diagnosis;
mod discovery;
mod failures;
mod gpus;
mod hostile;
mod memory;
mod network;
mod older;
mod placement;
mod prometheus;
mod secrecy;
mod services;
mod verified;
mod ways;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use libtest_mimic::{Arguments, Failed, Trial};
use system::jobs;

/// A test, given a folder of its own.
type Test = fn(&Path) -> Result<()>;

const TESTS: &[(&str, Test)] = &[
    ("accuracy_single_1", accuracy::single_1),
    ("accuracy_single_8", accuracy::single_8),
    ("accuracy_split_1", accuracy::split_1),
    ("accuracy_split_8", accuracy::split_8),
    ("replay_single", accuracy::replay_single),
    ("replay_split", accuracy::replay_split),
    ("agent_killed", failures::agent_killed),
    ("agent_late", failures::agent_late),
    ("server_killed_single", failures::server_killed_single),
    ("server_killed_split", failures::server_killed_split),
    ("garbage_on_the_port", failures::garbage),
    ("hostile_bytes", hostile::bytes),
    ("half_heads", hostile::half_heads),
    ("clients_that_leave", failures::clients_that_leave),
    ("driver_loaded_late_single", discovery::driver_loaded_late_single),
    ("driver_loaded_late_split", discovery::driver_loaded_late_split),
    ("server_after_agent", discovery::server_after_agent),
    ("counts_single", counts::single),
    ("counts_split", counts::split),
    ("cuda_variants", cuda::variants),
    ("cuda_million", cuda::million),
    ("cuda_unwaited", cuda::unwaited),
    ("cuda_streams", cuda::streams),
    ("cuda_in_flight", cuda::in_flight),
    ("cuda_graphs", cuda::graphs),
    ("cuda_legacy", cuda::legacy),
    ("cuda_polls", cuda::polls),
    ("cuda_waits", cuda::waits),
    ("memory_counts", memory::counts),
    ("memory_fragmented", memory::fragmented),
    ("memory_exhausted_self", memory::exhausted_self),
    ("memory_exhausted_others", memory::exhausted_others),
    ("memory_retry_storm", memory::retry_storm),
    ("memory_reservation", memory::reservation),
    ("memory_late", memory::late),
    ("memory_quiet", memory::quiet),
    ("memory_quiet_long", memory::quiet_long),
    ("inner_addresses", ways::inner_addresses),
    ("unknown_until_a_call", ways::unknown_until_a_call),
    ("blind", ways::blind),
    ("replaced_driver", ways::replaced),
    ("runtime_in_place_of_the_driver", ways::runtime_in_place_of_the_driver),
    ("unknown_variant", ways::unknown_variant),
    ("processes_come_and_go", churn::come_and_go),
    ("gpus", gpus::told_released_and_hanging),
    ("diagnosis_incidents", diagnosis::incidents_are_told),
    ("contention_one_device", contention::one_device),
    ("contention_two_devices", contention::two_devices),
    ("contention_two_contexts", contention::two_contexts),
    ("contention_neighbour", contention::neighbour),
    ("placement_reordered", placement::reordered),
    ("placement_reordered_silently", placement::reordered_silently),
    ("placement_late", placement::late),
    ("placement_late_by_nvml", placement::late_by_nvml),
    ("placement_instance", placement::instance),
    ("many_builds", services::many_builds),
    ("late_reader", network::late_reader),
    ("slow_client", network::slow_client),
    ("network_timing_off", network::off),
    ("connection_before_agent", older::connection_before_agent),
    ("prometheus", prometheus::queries),
    ("secrecy", secrecy::secret_stays),
    ("planted_secrets", secrecy::planted),
    ("verified_instructions", verified::instructions),
    ("check_strict", commands::check_strict),
    ("doctor", commands::doctor),
    ("bad_config", commands::bad_config),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let obstacle = system::host::obstacle();
    if let Some(reason) = &obstacle {
        tell_skips(reason);
    }
    let trials = TESTS.iter().map(|&(name, test)| {
        Trial::test(name, move || run(name, test)).with_ignored_flag(obstacle.is_some())
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn tell_skips(reason: &str) {
    let mut stdout = io::stdout().lock();
    for (name, _) in TESTS {
        // Nobody reads: nobody misses it.
        let _ = writeln!(stdout, "skip: {name}: {reason}");
    }
}

fn run(name: &str, test: Test) -> Result<(), Failed> {
    let dir = fresh_dir(name).map_err(|error| Failed::from(format!("{error:#}")))?;
    test(&dir).map_err(|error| Failed::from(format!("{error:#}\nfiles: {}", dir.display())))
}

fn fresh_dir(name: &str) -> Result<PathBuf> {
    let dir = system::host::root().join("target/system").join(name);
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("cannot empty {}", dir.display()))?;
    }
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    Ok(dir)
}
