//! x
use stacks::machine::Need;
use crate::Test;
pub(crate) const TESTS: &[(&str, Need, Test)] = &[];
