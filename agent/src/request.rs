//! [4] Requests and steps, and which steps belong to which request.

pub mod record;

pub use record::RequestRecord;
