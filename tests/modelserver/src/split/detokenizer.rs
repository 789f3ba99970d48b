//! The process between engine and front of shape `chain`: it makes text of tokens, which takes time.

use std::io;

use super::{Event, link::Link};
use crate::args::Args;
use crate::backend::BackendError;
use crate::clock::spin;
use crate::part::inherited;

/// Passes on what comes from the engine, until that or the front ends.
pub(crate) fn run(args: &Args) -> Result<(), BackendError> {
    let mut engine = Link::new(inherited(args.input_fd)?)?;
    let mut front = Link::new(inherited(args.output_fd)?)?;
    loop {
        engine.wait()?;
        match pass(args, &mut engine, &mut front) {
            Err(BackendError::Link(error)) if is_end(&error) => return Ok(()),
            result => result?,
        }
    }
}

fn pass(args: &Args, engine: &mut Link, front: &mut Link) -> Result<(), BackendError> {
    for event in engine.receive::<Event>()? {
        if let Event::Step(step) = &event {
            let tokens = step.outputs.iter().filter(|output| output.text.is_some()).count();
            spin(args.detok_us * tokens as u64);
        }
        front.send(&event)?;
    }
    Ok(())
}

/// The other side is gone.
pub(super) fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}
