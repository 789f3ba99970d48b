//! Whether connections that are older than the agent can be found.

use super::{Btf, Check, Grade};

/// Asks what the kernel lets a program go over, and for the fields that it reads then.
pub(super) fn check(btf: &Btf) -> Check {
    let name = "older connections";
    let has_fields = btf.socket_offsets().is_ok_and(|offsets| offsets.socket_sock != 0);
    if btf.has_iterator("task_file") && has_fields {
        return Check::ok(name, "are found when a service is, by an iterator over open files");
    }
    Check::bad(
        name,
        Grade::Warn,
        "the kernel has no iterator over open files, or not the fields it is to read",
        "a connection that is older than the agent is known from its first call on, and not counted before",
        "use Linux 5.15 or later, built with CONFIG_DEBUG_INFO_BTF",
    )
}
