//! The second server: shape `single` with slots, on a port of its own.

use std::io::{self, Read};
use std::thread;

use anyhow::Result;
use rustix::process::{Signal, getpid, kill_process};

use crate::args::{Args, Shape};
use crate::part::inherited;
use crate::server;
use crate::single::Single;
use crate::split::link::Link;

/// Serves until the standard input ends.
pub(crate) fn run(mut args: Args) -> Result<()> {
    let told = Link::new(inherited(args.output_fd)?)?;
    (args.shape, args.slots) = (Shape::Single, args.max_batch);
    (args.port, args.port_file, args.truth) = (0, None, None);
    thread::spawn(|| {
        drop(io::stdin().read_to_end(&mut Vec::new()));
        // To itself: it exists.
        let _ = kill_process(getpid(), Signal::TERM);
    });
    Ok(server::serve(&args, Some(told), Single::new)?)
}
