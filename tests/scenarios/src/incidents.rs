//! The incidents.

use system::rig::Shape;
use system::trouble::Wrong;

use crate::scenario::{Beside, Clocks, Demand, Scenario, Start, USUAL};

/// Bytes of a mebibyte.
const MIB: u64 = 1 << 20;

/// All of them.
pub(crate) fn all() -> Vec<Scenario> {
    let all = [requests(), answers(), host(), memory(), gpu(), lives()];
    all.into_iter().flatten().collect()
}

fn acted(name: &'static str, rule: &'static str, shape: Shape) -> Scenario {
    Scenario::new(name, Some(rule), shape)
}

/// What is asked is another thing than before.
fn requests() -> Vec<Scenario> {
    let long = Demand::new(1, ["3000-4000", "2"]).with("open-loop", 1.0);
    vec![
        acted("longer_prompts", "input_drift", Shape::Split).asked(Demand::new(2, ["1500-2000", USUAL[1]])),
        acted("longer_answers", "output_drift", Shape::Split).asked(Demand::new(2, [USUAL[0], "60-80"])),
        acted("more_than_it_can_take", "capacity_knee_passed", Shape::Split)
            .server("max-batch", 2)
            .asked(Demand::new(12, USUAL)),
        acted("more_than_one_slot_can_take", "capacity_knee_passed", Shape::Single)
            .asked(Demand::new(8, USUAL)),
        acted("long_prompts_among_others", "prefill_blocks_decode", Shape::Split)
            .server("step-tokens", 16_384)
            .always(Demand::new(4, USUAL))
            .besides(long),
        // Room for two and a half of the four that run.
        acted("memory_of_keys_too_small", "preemption", Shape::Split)
            .always(Demand::new(4, [USUAL[0], "48-64"]))
            .wrong(Wrong::KvTokens, 280),
    ]
}

/// Answers fail, or do not leave.
fn answers() -> Vec<Scenario> {
    vec![
        acted("clients_that_leave", "error_class_spike", Shape::Split)
            .asked(Demand::new(2, USUAL).with("abort-ratio", 0.5)),
        acted("engine_that_fails", "error_class_spike", Shape::Split).wrong(Wrong::FailPercent, 30),
        acted("clients_that_give_up", "timeout_share_rising", Shape::Single)
            .asked(Demand::new(2, USUAL).with("timeout", 1).with("stream-ratio", 0))
            .wrong(Wrong::SlowerPercent, 450),
        acted("clients_that_read_slowly", "slow_client", Shape::Split)
            .server("send-buffer", 4608)
            .asked(Demand::new(2, USUAL).with("slow-ratio", 0.6).with("slow-pause-ms", 60)),
    ]
}

/// The host is in the way.
fn host() -> Vec<Scenario> {
    let mut throttled = acted("cpu_quota", "cpu_throttled", Shape::Split).server("tokenizer-us", 2000);
    throttled.quota_us = Some(2000);
    vec![
        acted("blocked_event_loop", "event_loop_stall", Shape::Split).wrong(Wrong::BlockUs, 90_000),
        acted("slow_detokenizer", "postprocess_backpressure", Shape::Split).wrong(Wrong::DetokUs, 9000),
        acted("engine_that_waits_for_its_host", "host_bound", Shape::Single).wrong(Wrong::GapUs, 9000),
        throttled,
    ]
}

/// The GPU's memory.
fn memory() -> Vec<Scenario> {
    let slow = "cuMemAlloc_v2=4000,cuMemFree_v2=2000";
    let single = |name, rule| acted(name, rule, Shape::Single).delays(slow);
    vec![
        single("slow_allocations", "alloc_stall").wrong(Wrong::AllocBytes, 64 * MIB),
        // As the users told it: another job has left the memory in pieces.
        single("fragments_of_another_job", "memory_fragmentation")
            .server("decode-us", 4000)
            .wrong(Wrong::AllocBytes, 512 * MIB)
            .beside(Beside::Fragments),
        single("memory_taken_by_another_job", "memory_exhaustion")
            .wrong(Wrong::AllocBytes, 512 * MIB)
            .beside(Beside::Hog),
        single("more_memory_than_there_is", "memory_exhaustion").wrong(Wrong::AllocBytes, 20 << 30),
    ]
}

/// The GPU itself, or who else has it.
fn gpu() -> Vec<Scenario> {
    vec![
        acted("training_job_beside", "gpu_contention", Shape::Single).beside(Beside::Training),
        acted("another_server_beside", "gpu_contention", Shape::Single).beside(Beside::Server),
        acted("hot_gpu", "thermal_or_power_throttle", Shape::Split)
            .wrong(Wrong::SlowerPercent, 120)
            .clocks(Clocks::Hot),
        acted("power_cap", "thermal_or_power_throttle", Shape::Single)
            .wrong(Wrong::SlowerPercent, 80)
            .clocks(Clocks::Capped),
        acted("slow_rank", "rank_straggler", Shape::Sharded)
            .on(2)
            .server("ranks", 2)
            .wrong(Wrong::RankSlowerPercent, 150),
        acted("slower_for_no_seen_reason", "queue_buildup", Shape::Single).wrong(Wrong::SlowerPercent, 150),
    ]
}

/// Servers begin anew.
fn lives() -> Vec<Scenario> {
    let mut mixed = acted("gpus_of_two_models", "wrong_gpu_model_mix", Shape::Split)
        .on(2)
        .server("replicas", 2)
        .start(Start::Late);
    mixed.mixed = true;
    let compiles = "cuModuleLoadData=30000";
    vec![
        mixed,
        acted("restarted_and_cold", "cold_start", Shape::Single)
            .delays(compiles)
            .wrong(Wrong::Modules, 1)
            .start(Start::Again),
        acted("kernels_compiled_anew", "kernel_recompile", Shape::Single)
            .delays(compiles)
            .wrong(Wrong::Modules, 1),
    ]
}
