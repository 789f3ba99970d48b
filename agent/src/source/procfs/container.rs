//! Container ids from `/proc/PID/cgroup`, in the forms that container engines write.

/// Prefixes of helper cgroups that carry a container's id but hold the engine's own monitor process.
const MONITORS: [&str; 2] = ["crio-conmon", "libpod-conmon"];

/// Id (64 hex digits) of the innermost container in a cgroup file, the unified hierarchy first.
pub fn container_id(cgroup: &str) -> Option<String> {
    let path = |line: &'_ str| line.splitn(3, ':').nth(2).map(str::to_owned);
    let unified = cgroup.lines().filter(|line| line.starts_with("0::"));
    let legacy = cgroup.lines().filter(|line| !line.starts_with("0::"));
    unified.chain(legacy).filter_map(path).find_map(|path| id_in_path(&path))
}

/// UID of the innermost pod in a cgroup file, as Kubernetes writes it (`5e3f…-…`, with dashes).
pub fn pod_uid(cgroup: &str) -> Option<String> {
    cgroup.lines().filter_map(|line| line.splitn(3, ':').nth(2)).find_map(|path| {
        path.contains("kubepods").then(|| path.rsplit(['/', ':']).find_map(uid_in_segment))?
    })
}

/// `pod<uid>`, `kubepods-burstable-pod<uid with underscores>.slice`.
fn uid_in_segment(segment: &str) -> Option<String> {
    let segment = segment.strip_suffix(".slice").unwrap_or(segment);
    let (before, uid) = segment.rsplit_once("pod")?;
    let is_uid =
        (8..=64).contains(&uid.len()) && uid.bytes().all(|b| b.is_ascii_hexdigit() || b"-_".contains(&b));
    (is_uid && (before.is_empty() || before.ends_with('-'))).then(|| uid.replace('_', "-"))
}

/// The last segment with an id wins: workloads make cgroups of their own below it, engines nest in engines.
fn id_in_path(path: &str) -> Option<String> {
    path.rsplit('/').find_map(id_in_segment)
}

/// `<id>`, `docker-<id>.scope`, `cri-containerd-<id>.scope`, `libpod-<id>.scope`, `…slice:cri-containerd:<id>`.
fn id_in_segment(segment: &str) -> Option<String> {
    let segment = segment.strip_suffix(".scope").unwrap_or(segment);
    let (prefix, id) = segment.rsplit_once(['-', ':']).unwrap_or(("", segment));
    let is_id = id.len() == 64 && id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    (is_id && !MONITORS.contains(&prefix)).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each case's text has the id of the test, or none.
    fn check(cases: &[(String, bool)]) {
        for (text, found) in cases {
            assert_eq!(container_id(text), found.then(id), "{text}");
        }
    }

    fn id() -> String {
        "0123456789abcdef".repeat(4)
    }

    #[test]
    fn a_pod_is_known_by_its_uid() {
        let uid = "5e3f0a1b-1111-2222-3333-0123456789ab";
        let under = uid.replace('-', "_");
        let id = "a".repeat(64);
        let cases = [
            (format!("0::/kubepods/burstable/pod{uid}/{id}"), Some(uid)),
            (
                format!(
                    "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{under}.slice/cri-containerd-{id}.scope"
                ),
                Some(uid),
            ),
            (
                format!("0::/system.slice/containerd.service/kubepods-pod{under}.slice:cri-containerd:{id}"),
                Some(uid),
            ),
            (format!("0::/docker/{id}"), None),
            ("0::/user.slice/tripod12345678".to_owned(), None),
            (String::new(), None),
        ];
        for (cgroup, want) in cases {
            assert_eq!(pod_uid(&cgroup).as_deref(), want, "{cgroup}");
        }
    }

    #[test]
    fn every_known_form_is_read() {
        let id = id();
        check(&[
            (format!("0::/docker/{id}"), true),
            (format!("0::/system.slice/docker-{id}.scope"), true),
            (format!("0::/kubepods/burstable/pod5e3f/{id}"), true),
            (format!("0::/kubepods.slice/kubepods-pod1_2.slice/cri-containerd-{id}.scope"), true),
            (format!("0::/kubepods.slice/kubepods-besteffort.slice/crio-{id}.scope"), true),
            (format!("0::/kubepods.slice/crio-conmon-{id}.scope"), false),
            (
                format!(
                    "0::/system.slice/containerd.service/kubepods-burstable-pod1.slice:cri-containerd:{id}"
                ),
                true,
            ),
            (format!("0::/kubepods/pod1/{id}/my-own-child"), true),
            (format!("0::/docker/{}/docker/{id}", "f".repeat(64)), true),
            (format!("0::/docker/{}", &id[1..]), false),
            (format!("0::/docker/{}", id.to_uppercase()), false),
        ]);
    }

    /// LXC gives names and no ids; what has none is told as none, and k3s is containerd.
    #[test]
    fn r29_engines_other_than_docker() {
        let id = id();
        check(&[
            ("0::/lxc.payload.web/init.scope".to_owned(), false),
            ("0::/lxc/web".to_owned(), false),
            (format!("0::/lxc.payload.node/kubepods/besteffort/pod5e3f/{id}"), true),
            (format!("0::/podruntime/kubelet/kubepods/pod1/{id}"), true),
            (format!("0::/azure.slice/docker-{id}.scope"), true),
        ]);
    }

    /// Seen from another cgroup namespace, a path begins with steps upward.
    #[test]
    fn r45_private_cgroup_namespaces() {
        let id = id();
        check(&[
            (format!("0::/../cri-containerd-{id}.scope"), true),
            (format!("0::/../../pod1/{id}"), true),
            ("0::/../..".to_owned(), false),
            ("0::/../../user.slice".to_owned(), false),
            ("0::/".to_owned(), false),
        ]);
    }

    /// Podman's scopes, of root and of others; and a process that is gone before anyone reads.
    #[test]
    fn r52_podman_and_processes_that_are_gone() {
        let id = id();
        check(&[
            (format!("0::/machine.slice/libpod-{id}.scope/container"), true),
            (format!("0::/machine.slice/libpod-{id}.scope"), true),
            (format!("0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{id}.scope"), true),
            (format!("0::/machine.slice/libpod-conmon-{id}.scope"), false),
            (String::new(), false),
            ("not a cgroup line".to_owned(), false),
        ]);
    }

    /// Version 1, and both versions side by side: the unified line says nothing, and any controller's does.
    #[test]
    fn r53_hybrid_hierarchies() {
        let id = id();
        check(&[
            (format!("12:memory:/docker/{id}\n1:name=systemd:/\n0::/"), true),
            (format!("0::/\n4:cpu,cpuacct:/kubepods/burstable/pod5e3f/{id}"), true),
            (format!("9:devices:/system.slice/docker-{id}.scope\n"), true),
            ("3:cpuset:/\n2:memory:/user.slice\n0::/init.scope".to_owned(), false),
        ]);
    }
}
