//! Which programs go where.

use std::{collections::BTreeSet, path::PathBuf};

use super::{
    super::{
        elf::{Function, PROLOGUE},
        table::{Row, TABLE},
        tls,
    },
    points::{points, without_returns},
    *,
};

fn driver(functions: &[(&'static str, u64)]) -> Library {
    Library {
        kind: Kind::Cuda,
        id: FileId { device: 1, inode: 2 },
        path: PathBuf::from("/lib/libcuda.so.1"),
        file: tempfile::tempfile().unwrap(),
        functions: functions
            .iter()
            .map(|&(name, offset)| (name, Function { offset, prologue: [0; PROLOGUE] }))
            .collect(),
        is_go: false,
        unknown: Vec::new(),
    }
}

#[test]
fn every_program_of_the_table_is_attached_and_has_a_sentence() {
    let tls = tls::FUNCTIONS.iter().flat_map(|function| function.programs);
    let used: BTreeSet<_> = TABLE.iter().flat_map(Row::programs).chain(tls).copied().collect();
    assert_eq!(used, uprobes().collect());
    let others = TRACEPOINTS.iter().map(|point| point.program).chain([names::PROG_SOCK_OLDER]);
    for program in uprobes().chain(others) {
        assert_ne!(loses(program), loses("no such program"), "{program}");
    }
}

#[test]
fn a_return_program_stands_before_its_partner() {
    let place = |name: &str| uprobes().position(|program| program == name).unwrap();
    for row in TABLE {
        if let [enter, leave] = row.programs() {
            assert!(place(leave) < place(enter), "{}", row.name);
        }
    }
}

#[test]
fn an_entry_without_its_return_is_left_out() {
    let driver = driver(&[("cuStreamSynchronize", 16)]);
    let verdict = |attached| {
        let (program, target) = (names::PROG_SYNC_RETURN, "libcuda.so.1".to_owned());
        ProbeVerdict { attached, ..judge(&Intent { program, target, loses: "" }, &Outcome::default()) }
    };
    assert!(!lacks_return(names::PROG_SYNC_ENTER, &driver, &[verdict(1)]));
    assert!(lacks_return(names::PROG_SYNC_ENTER, &driver, &[verdict(0)]), "attached nowhere");
    assert!(lacks_return(names::PROG_SYNC_ENTER, &driver, &[]), "not loaded");
    assert!(!lacks_return(names::PROG_MEMORY_ENTER, &driver, &[]), "it has none of these");
    assert!(!lacks_return(names::PROG_COPY, &driver, &[]), "it has no partner");
}

#[test]
fn aliases_of_one_address_are_attached_once() {
    let driver = driver(&[("cuLaunchKernel", 16), ("cuLaunchKernel_ptsz", 16), ("cuGraphLaunch", 32)]);
    let (points, absent) = points(names::PROG_LAUNCH, &driver);
    assert_eq!(
        points.iter().map(|point| point.name).collect::<Vec<_>>(),
        ["cuLaunchKernel", "cuGraphLaunch"]
    );
    assert_eq!(absent, ["cuLaunchCooperativeKernel"], "cuLaunchKernelEx came later and may be absent");
}

#[test]
fn variants_that_nobody_taught_are_named() {
    let mut library = driver(&[("cuLaunchKernel", 16)]);
    assert_eq!(unknown_variants(&library), None);
    library.unknown = vec!["cuMemAlloc_v9".to_owned()];
    let verdict = unknown_variants(&library).unwrap();
    assert_eq!((verdict.state, verdict.attached), (State::Unsupported, 0));
    assert!(verdict.reason.is_some_and(|reason| reason.contains("cuMemAlloc_v9")));
}

#[test]
fn blocking_copies_are_counted_where_no_return_may_be_probed() {
    let mut driver = driver(&[("cuMemcpyDtoH_v2", 16), ("cuMemcpyDtoHAsync_v2", 32), ("cuMemAlloc_v2", 48)]);
    let names = |program, driver: &Library, kernel| {
        let points = without_returns(program, driver, kernel);
        points.iter().map(|point| point.name).collect::<Vec<_>>()
    };
    let (sound, deadly) = (KernelVersion::new(6, 8, 0), KernelVersion::new(6, 12, 3));
    assert!(names(names::PROG_COPY, &driver, sound).is_empty(), "they are waits");
    assert_eq!(names(names::PROG_COPY, &driver, deadly), ["cuMemcpyDtoH_v2"]);
    assert!(names(names::PROG_LAUNCH, &driver, deadly).is_empty());
    driver.is_go = true;
    assert_eq!(names(names::PROG_COPY, &driver, sound), ["cuMemcpyDtoH_v2"]);
}
