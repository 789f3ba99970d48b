//! Records of the ring buffer, and recordings of them.

use agent::{
    decode::meaningful,
    source::recording::{Reader, RecordingError, Writer},
};

use crate::exchanges::live_and_replay;

/// Between two records, since their lengths are what is tried.
const SEPARATOR: [u8; 4] = [0xfe, 0xdc, 0xba, 0x98];

/// Joins records to an input.
pub(crate) fn join(records: &[Vec<u8>]) -> Vec<u8> {
    records.join(&SEPARATOR[..])
}

/// Records as they lie in the ring buffer.
pub fn ring(mut data: &[u8]) {
    let mut records = Vec::new();
    while !data.is_empty() {
        let end = data.windows(4).position(|w| w == SEPARATOR);
        let (record, rest) = data.split_at(end.unwrap_or(data.len()));
        data = rest.get(4..).unwrap_or_default();
        records.push(record[..meaningful(record)].to_vec());
    }
    live_and_replay(&mut records);
}

/// A file that claims to be a recording.
pub fn recording(data: &[u8]) {
    let Ok(mut reader) = Reader::new(data) else { return };
    let mut records = Vec::new();
    let mut record = Vec::new();
    let end = loop {
        match reader.read(&mut record) {
            Ok(true) => records.push(record.clone()),
            Ok(false) => break None,
            Err(error) => break Some(error),
        }
    };
    assert_eq!(reader.records(), records.len() as u64);
    assert!(matches!(end, None | Some(RecordingError::Truncated { .. } | RecordingError::Length { .. })));
    live_and_replay(&mut records);
    written_is_read(&records);
}

fn written_is_read(records: &[Vec<u8>]) {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, u64::MAX).expect("room in memory");
    for record in records {
        writer.write(record).expect("what was read can be written");
    }
    let mut reader = Reader::new(&file[..]).expect("its own header");
    let mut again = Vec::new();
    for record in records {
        assert!(reader.read(&mut again).expect("its own record"));
        assert_eq!(record, &again);
    }
    assert!(!reader.read(&mut again).expect("its own end"));
}
