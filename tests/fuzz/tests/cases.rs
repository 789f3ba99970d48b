//! What the fuzz targets found, and their first inputs, without libFuzzer.

use std::{fs, panic, path::Path};

use fuzz::{TARGETS, Target};

fn run(target: &Target, name: &str, input: &[u8]) {
    // A panic names the line that failed, but not the input.
    let held = panic::catch_unwind(|| target.check(input));
    assert!(held.is_ok(), "{}: {name}", target.name);
}

#[test]
fn seeds() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{}", target.name);
        for (index, seed) in seeds.iter().enumerate() {
            assert!(seed.len() <= target.max_len, "{} seed {index}: {} bytes", target.name, seed.len());
            run(target, &format!("seed {index}"), seed);
            for cut in (0..seed.len()).step_by(seed.len() / 8 + 1) {
                run(target, &format!("seed {index} cut at {cut}"), &seed[..cut]);
            }
        }
    }
}

#[test]
fn cases() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let mut folders = 0;
    for folder in fs::read_dir(&root).unwrap() {
        let folder = folder.unwrap();
        let target = fuzz::target(folder.file_name().to_str().unwrap()).expect("a folder for each target");
        folders += 1;
        for case in fs::read_dir(folder.path()).unwrap() {
            let case = case.unwrap().path();
            run(target, &case.display().to_string(), &fs::read(&case).unwrap());
        }
    }
    assert_eq!(folders, TARGETS.len(), "one folder of cases for each target");
}
