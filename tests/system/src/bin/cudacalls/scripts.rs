//! The scripts.

mod counts;
mod order;
mod polls;
mod rows;
mod waits;

use crate::driver::{Driver, address};
use crate::report::{Report, Step, Work, now};

/// A script.
pub(crate) type Script = fn(&Driver) -> Report;

/// All of them.
pub(crate) const SCRIPTS: &[(&str, Script)] = &[
    ("variants", counts::variants),
    ("million", counts::million),
    ("unwaited", counts::unwaited),
    ("streams", counts::streams),
    ("in_flight", order::in_flight),
    ("graphs", order::graphs),
    ("legacy", order::legacy),
    ("polls", polls::polls),
    ("waits", waits::waits),
];

/// Bytes of device and host memory that scripts use.
const ROOM: usize = 1 << 20;

fn device_memory(driver: &Driver) -> u64 {
    driver.made("cuMemAlloc_v2", &[ROOM as u64])
}

fn host_memory() -> u64 {
    address(Box::leak(vec![0_u8; ROOM].into_boxed_slice()).as_ptr())
}

/// A step that is being asked for.
struct Asked {
    work: Work,
    first: Option<[u64; 2]>,
    graph: u64,
}

impl Asked {
    fn new() -> Self {
        Self { work: Work::default(), first: None, graph: 0 }
    }

    /// Makes a call and counts it.
    fn does(&mut self, count: impl FnOnce(&mut Work), call: impl FnOnce()) {
        let before = now();
        call();
        self.first.get_or_insert_with(|| [before, now()]);
        count(&mut self.work);
    }

    fn launches(&mut self, driver: &Driver, times: u64, units: u64, stream: u64) {
        for _ in 0..times {
            self.does(|work| work.launches += 1, || driver.launch(units, stream));
        }
    }

    fn result(self, result: [u64; 2]) -> Step {
        let first = self.first.expect("a step has work");
        Step { work: self.work, first, result, graph: self.graph }
    }
}
