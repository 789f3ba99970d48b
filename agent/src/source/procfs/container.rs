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
    let is_uid = (8..=64).contains(&uid.len()) && uid.bytes().all(|b| b.is_ascii_hexdigit() || b"-_".contains(&b));
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

    #[test]
    fn a_pod_is_known_by_its_uid() {
        let uid = "5e3f0a1b-1111-2222-3333-0123456789ab";
        let under = uid.replace('-', "_");
        let id = "a".repeat(64);
        let cases = [
            (format!("0::/kubepods/burstable/pod{uid}/{id}"), Some(uid)),
            (
                format!("0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{under}.slice/cri-containerd-{id}.scope"),
                Some(uid),
            ),
            (format!("0::/system.slice/containerd.service/kubepods-pod{under}.slice:cri-containerd:{id}"), Some(uid)),
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
        let id = "0123456789abcdef".repeat(4);
        let other = "f".repeat(64);
        let cases = [
            (format!("0::/docker/{id}"), true),
            (format!("0::/system.slice/docker-{id}.scope"), true),
            (format!("0::/kubepods/burstable/pod5e3f/{id}"), true),
            (format!("0::/kubepods.slice/kubepods-pod1_2.slice/cri-containerd-{id}.scope"), true),
            (format!("0::/kubepods.slice/kubepods-besteffort.slice/crio-{id}.scope"), true),
            (format!("0::/kubepods.slice/crio-conmon-{id}.scope"), false),
            (format!("0::/machine.slice/libpod-conmon-{id}.scope"), false),
            (format!("0::/machine.slice/libpod-{id}.scope/container"), true),
            (
                format!(
                    "0::/system.slice/containerd.service/kubepods-burstable-pod1.slice:cri-containerd:{id}"
                ),
                true,
            ),
            (format!("0::/../cri-containerd-{id}.scope"), true),
            (format!("0::/kubepods/pod1/{id}/my-own-child"), true),
            (format!("0::/docker/{other}/docker/{id}"), true),
            (format!("12:memory:/docker/{id}\n1:name=systemd:/\n0::/"), true),
            ("0::/".to_owned(), false),
            ("0::/../../user.slice".to_owned(), false),
            ("0::/lxc.payload.web/init.scope".to_owned(), false),
            (format!("0::/docker/{}", &id[1..]), false),
            (format!("0::/docker/{}", id.to_uppercase()), false),
            ("not a cgroup line".to_owned(), false),
            (String::new(), false),
        ];
        for (text, found) in cases {
            assert_eq!(container_id(&text), found.then(|| id.clone()), "{text}");
        }
    }
}
