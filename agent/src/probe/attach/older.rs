//! The iterator over open files, by which connections are found that began before their process was watched.

use std::io::{self, Read as _};

use aya::{
    Btf,
    programs::{Iter, ProgramError, links::LinkError},
};
use thiserror::Error;

use super::{
    super::{
        error::chain,
        verdict::{Intent, Outcome, ProbeVerdict, judge},
    },
    Attacher, Options, loses, names,
};

/// What it goes over.
pub(super) const TARGET: &str = "task_file";

/// Why a walk over all open files came to nothing.
#[derive(Debug, Error)]
enum WalkError {
    /// The program was not loaded; its verdict says why.
    #[error("the program is not loaded")]
    NotLoaded,
    /// It cannot be attached.
    #[error("the iterator cannot be attached")]
    Attach(#[from] ProgramError),
    /// The kernel does not begin.
    #[error("the iterator cannot be made")]
    Make(#[from] LinkError),
    /// It does not go on.
    #[error("the iterator ended early")]
    Read(#[from] io::Error),
}

/// Loads the program.
pub(super) fn load(program: &mut Iter) -> Result<(), ProgramError> {
    let types = Btf::from_sys_fs().map_err(ProgramError::Btf)?;
    program.load(TARGET, &types)
}

impl Attacher {
    /// Has the kernel side tell of connections of watched processes that began before these were watched. One walk over
    /// the open files of the host; without the program, such a connection is known from its first call on.
    pub fn find_older(&mut self) {
        match self.walk() {
            Ok(()) | Err(WalkError::NotLoaded) => {}
            Err(error) => {
                tracing::warn!(error = chain(&error), "older connections are known from their first call on");
            }
        }
    }

    fn walk(&mut self) -> Result<(), WalkError> {
        let program: Option<&mut Iter> =
            self.bpf.program_mut(names::PROG_SOCK_OLDER).and_then(|program| program.try_into().ok());
        let program = program.filter(|_| self.older.attached > 0).ok_or(WalkError::NotLoaded)?;
        let id = program.attach()?;
        let mut walk = program.take_link(id)?.into_file()?;
        // The program writes nothing here: this ends when it has gone over all files.
        walk.read_to_end(&mut Vec::new())?;
        Ok(())
    }
}

/// What became of the program.
pub(super) fn verdict(refused: Option<&String>, options: &Options) -> ProbeVerdict {
    let program = names::PROG_SOCK_OLDER;
    let intent = Intent { program, target: format!("iterator {TARGET}"), loses: loses(program) };
    let outcome = match refused {
        Some(why) => Outcome { refused: Some(why.clone()), ..Outcome::default() },
        None if options.offsets.socket_sock == 0 => {
            Outcome { absent: vec!["type information on files and sockets"], ..Outcome::default() }
        }
        None => Outcome { attached: 1, ..Outcome::default() },
    };
    judge(&intent, &outcome)
}
