//! Tells the compiler which architectures the kernel side knows; the one it is built for comes as a flag.

use std::io::{self, Write};

fn main() -> io::Result<()> {
    writeln!(io::stdout(), r#"cargo::rustc-check-cfg=cfg(bpf_target_arch, values("x86_64", "aarch64"))"#)?;
    writeln!(io::stdout(), "cargo::rerun-if-changed=build.rs")
}
