//! What the agent itself costs, read when somebody asks.

use rustix::time::{ClockId, clock_gettime};

/// CPU time of the process so far, seconds.
pub fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Resident memory of the process, bytes; `None` when /proc does not tell.
pub fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// `CLOCK_MONOTONIC`, ns: the clock of every record.
pub fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Nanoseconds since the Unix epoch.
pub fn wall_ns() -> u64 {
    nanoseconds(ClockId::Realtime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_has_memory_and_uses_time() {
        let resident = resident_bytes().unwrap();
        assert!((1 << 20..1 << 34).contains(&resident), "{resident}");
        let before = cpu_seconds();
        let mut n = 0_u64;
        while cpu_seconds() <= before {
            n = n.wrapping_add(std::hint::black_box(1));
        }
        assert!(monotonic_ns() > 0 && wall_ns() > 1_600_000_000_000_000_000);
    }
}
