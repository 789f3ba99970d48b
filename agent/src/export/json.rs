//! The one way in which a record becomes a line, so that live, API and replay give the same bytes.

use serde::Serialize;

pub use crate::names::name;

/// One JSON object and a newline.
pub fn line(record: &impl Serialize) -> String {
    // Strings, numbers and maps with string keys: there is nothing in a record that JSON cannot hold.
    let mut line = serde_json::to_string(record).expect("a record is JSON");
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::RequestRecord;

    #[test]
    fn a_line_has_what_is_known_and_nothing_else() {
        let record = RequestRecord { pid: 7, ttft_s: Some(0.25), ..RequestRecord::default() };
        let want = "{\"pid\":7,\"comm\":\"\",\"service\":\"\",\"protocol\":\"\",\"bytes_in\":0,\"bytes_out\":0,\
                    \"ttft_s\":0.25,\"sampled\":false}\n";
        assert_eq!(line(&record), want);
    }
}
