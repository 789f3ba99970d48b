//! What `/proc` tells of a process that uses a GPU: which devices it may see and has open, and signs of what it is for.
//!
//! Command lines and environments can hold credentials: only words of the closed sets below leave this file.

use std::{collections::BTreeMap, fs, io::BufRead as _, path::Path};

use super::{ProcFs, Stat, container::pod_uid, read_small};
use crate::decode::{GpuProcessSeen, Sign};

/// Most descriptors of a process that are looked at; GPU processes have few thousands.
const MAX_DESCRIPTORS: usize = 8192;
/// Most lines of a memory map that are read.
const MAX_LINES: usize = 1 << 17;
/// Most devices of `CUDA_VISIBLE_DEVICES` that are kept.
const MAX_VISIBLE: usize = 64;
/// Words of launchers of training, and of scripts named for it.
const TRAINING: [&str; 9] = [
    "torchrun",
    "deepspeed",
    "accelerate",
    "torch.distributed",
    "horovodrun",
    "train",
    "finetune",
    "pretrain",
    "sft",
];
/// Words of inference servers.
const SERVING: [&str; 9] = [
    "vllm",
    "sglang",
    "tritonserver",
    "text-generation-launcher",
    "text-generation-server",
    "llama-server",
    "ollama",
    "lmdeploy",
    "torchserve",
];
/// Endings of checkpoints' names.
const CHECKPOINTS: [&str; 6] = ["pt", "pth", "ckpt", "safetensors", "distcp", "bin"];
/// What `PyTorch` names the memory that it shares with its data loaders.
const SHARED: &str = "/dev/shm/torch_";

impl ProcFs {
    /// What is known of a process that uses a GPU; `None` when it has ended. `all` are the processes of the node.
    pub fn gpu_process(&self, stat: &Stat, all: &[Stat]) -> Option<GpuProcessSeen> {
        let pid = stat.pid;
        let environment = Environment::read(self, pid);
        let files = self.open_files(pid);
        let (nccl, shares) = self.libraries(pid);
        let mut signs = command_signs(&read_small(&self.path(pid, "cmdline")).ok()?);
        signs.extend(nccl.then_some(Sign::Nccl));
        signs.extend((environment.world > 1).then_some(Sign::Distributed { processes: environment.world }));
        let workers = self.data_loaders(stat, all, shares);
        signs.extend((workers > 0).then_some(Sign::DataLoaders { workers }));
        signs.extend(files.checkpoint.map(|ending| Sign::Checkpoint { ending }));
        let cgroup = read_small(&self.path(pid, "cgroup")).unwrap_or_default();
        Some(GpuProcessSeen {
            pid,
            start_ticks: stat.start_ticks,
            visible_devices: environment.visible,
            pci_order: environment.pci_order,
            open_devices: self.bus_addresses(&files.minors),
            pod: pod_uid(&String::from_utf8_lossy(&cgroup)),
            signs,
        })
    }

    /// NCCL is mapped; so is memory as `PyTorch` shares it.
    fn libraries(&self, pid: u32) -> (bool, bool) {
        let Ok(maps) = self.maps(pid) else { return (false, false) };
        let mut found = (false, false);
        for line in maps.lines().take(MAX_LINES).map_while(Result::ok) {
            found.0 |= line.contains("/libnccl.so");
            found.1 |= line.contains(SHARED);
        }
        found
    }

    fn open_files(&self, pid: u32) -> Files {
        let mut files = Files::default();
        let Ok(entries) = fs::read_dir(self.path(pid, "fd")) else { return files };
        for entry in entries.take(MAX_DESCRIPTORS).flatten() {
            let Ok(target) = fs::read_link(entry.path()) else { continue };
            let Some(target) = target.to_str() else { continue };
            if let Some(minor) = target.strip_prefix("/dev/nvidia").and_then(|rest| rest.parse().ok()) {
                files.minors.push(minor);
            } else if let Some(ending) = checkpoint(target)
                && self.is_written(pid, &entry.file_name().to_string_lossy())
            {
                files.checkpoint = Some(ending.to_owned());
            }
        }
        files.minors.sort_unstable();
        files.minors.dedup();
        files
    }

    /// The file is open for writing: the lowest bits of its flags.
    fn is_written(&self, pid: u32, descriptor: &str) -> bool {
        let text = read_small(&self.path(pid, "fdinfo").join(descriptor)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
        flags.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).is_some_and(|flags| flags & 3 != 0)
    }

    /// PCI addresses of the device files `/dev/nvidiaN`, as the driver lists them.
    fn bus_addresses(&self, minors: &[u32]) -> Vec<String> {
        if minors.is_empty() {
            return Vec::new();
        }
        let gpus = fs::read_dir(self.root.join("driver/nvidia/gpus")).into_iter().flatten().flatten();
        let by_minor: BTreeMap<u32, String> =
            gpus.filter_map(|gpu| Some((minor(&gpu.path())?, gpu.file_name().into_string().ok()?))).collect();
        minors.iter().filter_map(|minor| by_minor.get(minor).cloned()).collect()
    }

    /// Children that run the same program, have no threads of a CUDA driver, and share memory with it. What they map and
    /// have open says nothing: a fork has that of its parent, but none of its threads.
    fn data_loaders(&self, stat: &Stat, all: &[Stat], shares: bool) -> u32 {
        let children = all.iter().filter(|child| child.ppid == stat.pid);
        let own = self.exe(stat.pid).ok();
        let is_loader = |child: &&Stat| {
            child.comm.starts_with("pt_data_worker")
                || shares
                    && own.is_some()
                    && self.exe(child.pid).ok() == own
                    && !self.has_cuda_threads(child.pid)
        };
        u32::try_from(children.filter(is_loader).count()).unwrap_or(u32::MAX)
    }

    /// The CUDA driver has initialised: its threads are `cuda-EvtHandlr` and `cuda` with a number.
    fn has_cuda_threads(&self, pid: u32) -> bool {
        let name = |tid: u32| read_small(&self.path(pid, "task").join(tid.to_string()).join("comm")).ok();
        self.threads(pid)
            .is_ok_and(|mut tids| tids.any(|tid| name(tid).is_some_and(|name| name.starts_with(b"cuda"))))
    }
}

/// What is of interest among a process's open files.
#[derive(Debug, Default)]
struct Files {
    minors: Vec<u32>,
    checkpoint: Option<String>,
}

/// What is of interest in a process's environment.
#[derive(Debug, Default, PartialEq, Eq)]
struct Environment {
    visible: Option<Vec<String>>,
    pci_order: bool,
    world: u32,
}

impl Environment {
    fn read(procfs: &ProcFs, pid: u32) -> Self {
        Self::parse(&read_small(&procfs.path(pid, "environ")).unwrap_or_default())
    }

    fn parse(bytes: &[u8]) -> Self {
        let mut found = Self::default();
        for variable in bytes.split(|&b| b == 0).filter_map(|text| std::str::from_utf8(text).ok()) {
            match variable.split_once('=') {
                Some(("CUDA_VISIBLE_DEVICES", list)) => found.visible = Some(visible(list)),
                Some(("CUDA_DEVICE_ORDER", order)) => found.pci_order = order == "PCI_BUS_ID",
                Some(("WORLD_SIZE", size)) => found.world = size.parse().unwrap_or(0),
                _ => {}
            }
        }
        found
    }
}

/// The devices of a list, up to the first that is none, as CUDA reads it.
fn visible(list: &str) -> Vec<String> {
    let is_device = |name: &&str| {
        let number = !name.is_empty() && name.len() <= 3 && name.bytes().all(|b| b.is_ascii_digit());
        let uuid = name.strip_prefix("GPU-").or(name.strip_prefix("MIG-"));
        number
            || uuid.is_some_and(|uuid| {
                uuid.len() <= 64 && uuid.bytes().all(|b| b.is_ascii_hexdigit() || b"-/GPU".contains(&b))
            })
    };
    list.split(',').map(str::trim).take_while(is_device).take(MAX_VISIBLE).map(str::to_owned).collect()
}

/// Words of the command line: names of programs, modules and scripts in its first arguments.
fn command_signs(cmdline: &[u8]) -> Vec<Sign> {
    let arguments: Vec<&str> =
        cmdline.split(|&b| b == 0).take(8).filter_map(|text| std::str::from_utf8(text).ok()).collect();
    // Options can have any value; what is run has none of these.
    let names = arguments
        .iter()
        .filter(|text| !text.starts_with('-'))
        .map(|text| text.rsplit('/').next().unwrap_or(text));
    let mut signs = Vec::new();
    for name in names {
        if let Some(word) = TRAINING.iter().find(|word| is_word(name, word)) {
            signs.push(Sign::TrainingCommand { word: (*word).to_owned() });
        }
        if let Some(word) = SERVING.iter().find(|word| is_word(name, word)) {
            signs.push(Sign::ServingCommand { word: (*word).to_owned() });
        }
    }
    signs.sort_unstable();
    signs.dedup();
    signs
}

/// The name is the word, or begins with it before a character that ends words: `train_llm.py`, `vllm.entrypoints`.
fn is_word(name: &str, word: &str) -> bool {
    let before = |rest: &str| rest.is_empty() || rest.starts_with(['.', '_', '-']);
    name.strip_prefix(word).is_some_and(before)
        || name
            .strip_suffix(".py")
            .and_then(|stem| stem.strip_suffix(word))
            .is_some_and(|rest| rest.ends_with(['_', '-', '.']))
}

/// The ending of a name as checkpoints have it.
fn checkpoint(path: &str) -> Option<&'static str> {
    let (_, ending) = path.rsplit_once('.')?;
    let known = CHECKPOINTS.iter().copied().find(|known| *known == ending)?;
    // Many things end so; a checkpoint's folder or name says what it is.
    (known != "bin" || path.contains("checkpoint")).then_some(known)
}

/// The number in the driver's file on a GPU.
fn minor(gpu: &Path) -> Option<u32> {
    let text = read_small(&gpu.join("information")).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines().find_map(|line| line.strip_prefix("Device Minor:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn stat(pid: u32, ppid: u32, comm: &str) -> Stat {
        Stat {
            pid,
            comm: comm.to_owned(),
            ppid,
            pgrp: 1,
            session: 1,
            threads: 1,
            cpu_ticks: 0,
            rss_pages: 0,
            start_ticks: 5,
            vsize: 1,
        }
    }

    #[test]
    fn only_words_of_the_sets_leave_a_command_line() {
        let training = |word: &str| Sign::TrainingCommand { word: word.into() };
        let serving = |word: &str| Sign::ServingCommand { word: word.into() };
        let cases: [(&str, Vec<Sign>); 9] = [
            ("/usr/bin/torchrun\0--nproc=8\0train_gpt.py", vec![training("torchrun"), training("train")]),
            ("python\0-m\0torch.distributed.run\0x.py", vec![training("torch.distributed")]),
            ("python\0/opt/lora_finetune.py\0--key\0secret", vec![training("finetune")]),
            ("python3\0-m\0vllm.entrypoints.openai.api_server", vec![serving("vllm")]),
            ("tritonserver\0--model-repository=/train", vec![serving("tritonserver")]),
            ("python\0trainer.py", vec![]),
            ("python\0constrain.py", vec![]),
            ("/srv/train/server", vec![]),
            ("", vec![]),
        ];
        for (cmdline, want) in cases {
            assert_eq!(command_signs(cmdline.as_bytes()), want, "{cmdline:?}");
        }
    }

    #[test]
    fn visible_devices_are_read_as_cuda_reads_them() {
        let cases: [(&str, &[&str]); 6] = [
            ("1,0", &["1", "0"]),
            ("", &[]),
            ("0,-1,1", &["0"]),
            (" 2 , 3", &["2", "3"]),
            ("GPU-0a1b2c3d-1111, MIG-ffff", &["GPU-0a1b2c3d-1111", "MIG-ffff"]),
            ("NoDevFiles", &[]),
        ];
        for (list, want) in cases {
            assert_eq!(visible(list), want, "{list:?}");
        }
        let environ = b"API_KEY=secret\0CUDA_VISIBLE_DEVICES=1\0CUDA_DEVICE_ORDER=PCI_BUS_ID\0WORLD_SIZE=8\0\xff=\xff\0";
        let found = Environment::parse(environ);
        assert_eq!(found, Environment { visible: Some(vec!["1".into()]), pci_order: true, world: 8 });
    }

    #[test]
    fn a_training_process_is_read_from_a_folder() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("7/cmdline", "python\0train.py\0");
        write("7/environ", "WORLD_SIZE=2\0");
        write("7/cgroup", "0::/kubepods/burstable/pod01234567-89ab/x");
        write(
            "7/maps",
            "7f00-7f01 r-xp 0 0:0 1 /usr/lib/libnccl.so.2\n7f02-7f03 rw-s 0 0:0 2 /dev/shm/torch_1_2\n",
        );
        write("7/fdinfo/5", "pos:\t0\nflags:\t0100001\n");
        write("7/fdinfo/6", "pos:\t0\nflags:\t0100000\n");
        write("8/task/8/comm", "python\n");
        // A worker of its own, on its own GPU.
        write("11/task/11/comm", "python\n");
        write("11/task/12/comm", "cuda-EvtHandlr\n");
        write("driver/nvidia/gpus/0000:3b:00.0/information", "Model: \tX\nDevice Minor: \t 1\n");
        fs::create_dir_all(root.path().join("7/fd")).unwrap();
        for (name, target) in
            [("3", "/dev/nvidia1"), ("4", "/dev/nvidiactl"), ("5", "/out/model.pt"), ("6", "/in/base.ckpt")]
        {
            symlink(target, root.path().join("7/fd").join(name)).unwrap();
        }
        for pid in ["7", "8", "11"] {
            symlink("/usr/bin/python3", root.path().join(pid).join("exe")).unwrap();
        }
        let procfs = ProcFs::new(root.path());
        let all = [
            stat(7, 1, "python"),
            stat(8, 7, "python"),
            stat(9, 7, "pt_data_worker"),
            stat(10, 7, "sh"),
            stat(11, 7, "python"),
        ];
        let seen = procfs.gpu_process(&all[0], &all).unwrap();
        assert_eq!(seen.open_devices, ["0000:3b:00.0"]);
        assert_eq!(seen.pod.as_deref(), Some("01234567-89ab"));
        assert_eq!(
            seen.signs,
            [
                Sign::TrainingCommand { word: "train".into() },
                Sign::Nccl,
                Sign::Distributed { processes: 2 },
                Sign::DataLoaders { workers: 2 },
                Sign::Checkpoint { ending: "pt".into() },
            ]
        );
        assert_eq!(procfs.gpu_process(&stat(99, 1, "x"), &all), None);
    }
}
