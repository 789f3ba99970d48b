//! The table of runtime functions against the real runtime, as it comes with the frameworks of CUDA 12 and 13.
//!
//! `cargo xtask setup` fetches it; without, the tests say so and pass, but in `cargo xtask test`, which sets up first, they
//! fail.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write as _;
use std::{
    collections::BTreeSet,
    fs::File,
    path::{Path, PathBuf},
};

use agent::probe::{
    elf::{Exports, exports},
    prologue::{Instruction, place},
    table::{TABLE, is_unknown_variant},
    verdict::CostClass,
};

/// The libraries that are there, by major version.
fn libraries() -> Vec<(u32, PathBuf)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/stacks/cudart");
    let path = |version: u32| (version, folder.join(format!("libcudart.so.{version}")));
    let there: Vec<_> = [12, 13].map(path).into_iter().filter(|(_, path)| path.is_file()).collect();
    let is_set_up = std::env::var_os("STAGELENS_SET_UP").is_some();
    assert!(there.len() == 2 || !is_set_up, "{} real runtimes instead of 2", there.len());
    if there.len() < 2 {
        let _ = writeln!(
            std::io::stdout(),
            "SKIPPED: {} real runtimes instead of 2; run `cargo xtask setup`",
            there.len()
        );
    }
    there
}

fn symbols() -> Vec<&'static str> {
    let rows = TABLE.iter().filter(|row| row.runtime);
    rows.flat_map(|row| row.symbols).map(|symbol| symbol.name).collect()
}

fn read<'n>(path: &Path, wanted: &[&'n str]) -> Exports<'n> {
    exports(&File::open(path).unwrap(), wanted, is_unknown_variant).unwrap()
}

#[test]
fn every_function_of_the_table_is_in_the_real_runtime_and_no_variant_of_one_is_missing() {
    for (version, path) in libraries() {
        let wanted = symbols();
        let found = read(&path, &wanted);
        let absent: Vec<_> = wanted.iter().filter(|name| !found.functions.contains_key(**name)).collect();
        assert!(absent.is_empty(), "CUDA {version}: {absent:?}");
        assert_eq!(found.others, Vec::<String>::new(), "CUDA {version}");
        let places: BTreeSet<u64> = found.functions.values().map(|function| function.offset).collect();
        assert_eq!(places.len(), found.functions.len(), "CUDA {version}: two names of one place");
    }
}

/// A probe that the kernel must single-step costs several times as much.
#[cfg(target_arch = "x86_64")]
#[test]
fn every_function_of_the_real_runtime_has_a_cheap_place() {
    for (version, path) in libraries() {
        let wanted = symbols();
        for (name, function) in read(&path, &wanted).functions {
            let place = place(&function.prologue);
            let code = function.prologue;
            assert_eq!(place.instruction.cost(), CostClass::Emulated, "CUDA {version}: {name}: {code:02x?}");
            assert_eq!(place.instruction, Instruction::Push, "CUDA {version}: {name}: {code:02x?}");
        }
    }
}
