//! libFuzzer over one target, named in `FUZZ_TARGET`.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<&'static fuzz::Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    fuzz::target(&name).expect("FUZZ_TARGET names one of fuzz::TARGETS")
});

fuzz_target!(|data: &[u8]| TARGET.check(data));
