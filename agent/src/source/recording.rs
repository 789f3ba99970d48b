//! Record and replay: the record bytes of a run in a file.
//!
//! ```text
//! file   = magic "SLREC\0\0" + version byte | ABI u32 LE | reserved u32 LE | record*
//! record = length u32 LE | that many bytes
//! ```
//!
//! The writer gets records after the pipeline has masked them, so a recording holds no text of a prompt, an answer
//! or a credential. It only appends: a file cut off by `kill -9` or a full disk is good up to the cut, and the
//! reader says where the cut is.

use std::io::{self, Read, Write};

use thiserror::Error;

/// First seven bytes of a recording; the version follows.
const MAGIC: &[u8; 7] = b"SLREC\0\0";
/// Version of the container (not of the records: that is the ABI).
const VERSION: u8 = 1;
/// Magic, version, ABI, reserved.
const HEADER_LEN: usize = 16;

/// Longest record that is written or read. The kernel side's largest is under 2 KiB; observations are JSON of the
/// agent and may be longer. A length beyond it means that the file is damaged.
pub const MAX_RECORD: usize = 1 << 20;

/// Why a recording could not be written or read.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// The file is not a recording.
    #[error("not a stagelens recording (it does not begin with the recording's magic bytes)")]
    Magic,
    /// A recording of another container format.
    #[error(
        "recording of format version {found}, this agent reads version {VERSION}; use the agent that wrote it"
    )]
    Version {
        /// Version in the file.
        found: u8,
    },
    /// Records of another ABI.
    #[error(
        "recording with records of ABI {found}, this agent reads ABI {}; use the agent that wrote it",
        wire::ABI
    )]
    Abi {
        /// ABI in the file.
        found: u32,
    },
    /// The file ends inside a record: its writer was killed, or the disk was full.
    #[error(
        "the recording ends inside record {record} (byte {offset}); the {record} records before it are complete"
    )]
    Truncated {
        /// Complete records before the cut.
        record: u64,
        /// Where the record that was cut begins.
        offset: u64,
    },
    /// A length no record has: the file is damaged from here on.
    #[error(
        "the recording is damaged at record {record} (byte {offset}): it claims a length of {length} bytes"
    )]
    Length {
        /// Complete records before the damage.
        record: u64,
        /// Where the damage begins.
        offset: u64,
        /// The length it claims.
        length: u64,
    },
    /// A record that is too long to be written.
    #[error("a record of {length} bytes is longer than a recording takes ({MAX_RECORD})")]
    TooLong {
        /// Its length.
        length: usize,
    },
    /// The recording has reached its allowed size.
    #[error("the recording has reached its limit of {max_bytes} bytes (recording.max_bytes)")]
    Full {
        /// The limit.
        max_bytes: u64,
    },
    /// The file could not be read or written.
    #[error("input or output of the recording failed")]
    Io(#[from] io::Error),
}

/// Appends records. The owner decides on buffering and calls [`Writer::flush`].
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    bytes: u64,
    records: u64,
    max_bytes: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the file's header. `max_bytes` bounds the file, header included.
    pub fn new(mut out: W, max_bytes: u64) -> Result<Self, RecordingError> {
        let mut header = Vec::with_capacity(HEADER_LEN);
        header.extend_from_slice(MAGIC);
        header.push(VERSION);
        header.extend_from_slice(&u32::from(wire::ABI).to_le_bytes());
        header.extend_from_slice(&0_u32.to_le_bytes());
        out.write_all(&header)?;
        Ok(Self { out, bytes: HEADER_LEN as u64, records: 0, max_bytes })
    }

    /// Appends one record. After an error the file may end inside a record; nothing more should be written.
    pub fn write(&mut self, record: &[u8]) -> Result<(), RecordingError> {
        let length = record.len();
        if length > MAX_RECORD {
            return Err(RecordingError::TooLong { length });
        }
        let after = self.bytes + 4 + length as u64;
        if after > self.max_bytes {
            return Err(RecordingError::Full { max_bytes: self.max_bytes });
        }
        let prefix = u32::try_from(length).map_err(|_| RecordingError::TooLong { length })?;
        self.out.write_all(&prefix.to_le_bytes())?;
        self.out.write_all(record)?;
        self.bytes = after;
        self.records += 1;
        Ok(())
    }

    /// Hands what is buffered to the operating system.
    pub fn flush(&mut self) -> Result<(), RecordingError> {
        Ok(self.out.flush()?)
    }

    /// Size of the file so far, buffered bytes included.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Records so far.
    pub fn records(&self) -> u64 {
        self.records
    }
}

/// Reads records in the order in which they were written.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    offset: u64,
    records: u64,
}

impl<R: Read> Reader<R> {
    /// Reads and checks the file's header.
    pub fn new(mut input: R) -> Result<Self, RecordingError> {
        let mut header = [0; HEADER_LEN];
        let got = fill(&mut input, &mut header)?;
        if got < MAGIC.len() + 1 || header[..MAGIC.len()] != *MAGIC {
            return Err(RecordingError::Magic);
        }
        let found = header[MAGIC.len()];
        if found != VERSION {
            return Err(RecordingError::Version { found });
        }
        if got < HEADER_LEN {
            return Err(RecordingError::Truncated { record: 0, offset: 0 });
        }
        let found = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        if found != u32::from(wire::ABI) {
            return Err(RecordingError::Abi { found });
        }
        Ok(Self { input, offset: HEADER_LEN as u64, records: 0 })
    }

    /// The next record into `record` (whose contents are replaced); `false` at the regular end of the file.
    /// After an error there is nothing more to read.
    pub fn read(&mut self, record: &mut Vec<u8>) -> Result<bool, RecordingError> {
        let mut prefix = [0; 4];
        match fill(&mut self.input, &mut prefix)? {
            0 => return Ok(false),
            4 => {}
            _ => return Err(self.truncated()),
        }
        let length = u32::from_le_bytes(prefix) as usize;
        if length > MAX_RECORD {
            let length = length as u64;
            return Err(RecordingError::Length { record: self.records, offset: self.offset, length });
        }
        record.clear();
        record.resize(length, 0);
        if fill(&mut self.input, record)? < length {
            return Err(self.truncated());
        }
        self.offset += 4 + length as u64;
        self.records += 1;
        Ok(true)
    }

    /// Complete records read so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    fn truncated(&self) -> RecordingError {
        RecordingError::Truncated { record: self.records, offset: self.offset }
    }
}

/// Reads until `buffer` is full or the input ends; how many bytes there were.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match input.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDS: [&[u8]; 4] = [b"first", b"", b"\0\xff\0", b"the last one"];

    fn recording() -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), u64::MAX).unwrap();
        for record in RECORDS {
            writer.write(record).unwrap();
        }
        assert_eq!(writer.records(), 4);
        assert_eq!(writer.bytes(), writer.out.len() as u64);
        writer.out
    }

    /// All records before the end or the error, and the error.
    fn read_all(file: &[u8]) -> (Vec<Vec<u8>>, Option<RecordingError>) {
        let mut reader = match Reader::new(file) {
            Ok(reader) => reader,
            Err(error) => return (Vec::new(), Some(error)),
        };
        let (mut records, mut record) = (Vec::new(), Vec::new());
        loop {
            match reader.read(&mut record) {
                Ok(true) => records.push(record.clone()),
                Ok(false) => return (records, None),
                Err(error) => return (records, Some(error)),
            }
        }
    }

    #[test]
    fn a_round_trip_gives_the_same_records() {
        let (records, error) = read_all(&recording());
        assert_eq!(records, RECORDS);
        assert!(error.is_none(), "{error:?}");
    }

    #[test]
    fn a_cut_at_any_byte_keeps_every_record_before_it() {
        let file = recording();
        let mut starts = vec![HEADER_LEN];
        for record in RECORDS {
            starts.push(starts[starts.len() - 1] + 4 + record.len());
        }
        for cut in HEADER_LEN..file.len() {
            let (records, error) = read_all(&file[..cut]);
            let complete = starts.iter().filter(|&&start| start <= cut).count() - 1;
            assert_eq!(records.len(), complete, "cut at {cut}");
            match error {
                None => assert!(starts.contains(&cut), "cut at {cut} was not noticed"),
                Some(RecordingError::Truncated { record, offset }) => {
                    assert_eq!((record, offset), (complete as u64, starts[complete] as u64));
                }
                other => panic!("cut at {cut}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_is_not_a_recording_is_refused_with_a_sentence() {
        let good = recording();
        let changed = |at: usize, to: u8| {
            let mut file = good.clone();
            file[at] = to;
            file
        };
        let cases: [(&str, Vec<u8>, &str); 7] = [
            ("empty", Vec::new(), "not a stagelens recording"),
            ("text", b"hello, this is a text file".to_vec(), "not a stagelens recording"),
            ("short text", b"hi".to_vec(), "not a stagelens recording"),
            ("later format", changed(7, 2), "format version 2, this agent reads version 1"),
            ("other ABI", changed(8, 77), "ABI 77, this agent reads ABI"),
            ("cut in the header", good[..10].to_vec(), "ends inside record 0"),
            ("absurd length", changed(HEADER_LEN + 3, 0x7f), "damaged at record 0 (byte 16)"),
        ];
        for (name, file, want) in cases {
            let (records, error) = read_all(&file);
            assert!(records.is_empty(), "{name}");
            let message = error.expect(name).to_string();
            assert!(message.contains(want), "{name}: {message}");
        }
    }

    #[test]
    fn the_size_is_bounded_and_the_file_stays_whole() {
        let mut writer = Writer::new(Vec::new(), (HEADER_LEN + 4 + 5 + 3) as u64).unwrap();
        writer.write(b"first").unwrap();
        assert!(matches!(writer.write(b"x"), Err(RecordingError::Full { .. })));
        assert!(matches!(writer.write(&vec![0; MAX_RECORD + 1]), Err(RecordingError::TooLong { .. })));
        let (records, error) = read_all(&writer.out);
        assert_eq!(records, [b"first"]);
        assert!(error.is_none());
    }

    #[test]
    fn a_write_error_is_handed_on() {
        let file = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let error = Writer::new(file, u64::MAX).unwrap_err();
        assert!(matches!(error, RecordingError::Io(_)), "{error:?}");
    }
}
