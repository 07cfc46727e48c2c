//! What DUMP answers for a lock, taken apart and put together again (without compression):
//!
//! ```text
//! type:u8 | module id:9 bytes | 5 (a string follows) | length | record | 0 (the end) | RDB
//! version:2 bytes | CRC64:u64
//! ```

use crate::harness::dump::crc64;

/// The length of the version and the CRC64.
pub const FOOTER: usize = 2 + 8;

/// The length of what comes before the length of the record.
const HEAD: usize = 1 + 9 + 1;

#[derive(Clone)]
pub struct Payload {
    head: Vec<u8>,
    /// The record that the module wrote.
    pub record: Vec<u8>,
    version: [u8; 2],
}

impl Payload {
    #[track_caller]
    pub fn read(bytes: &[u8]) -> Self {
        let (head, rest) = bytes.split_at(HEAD);
        assert_eq!(head[HEAD - 1], 5, "no string: {}", bytes.escape_ascii());
        let (len, start) = match rest[0] >> 6 {
            0 => (usize::from(rest[0]), 1),
            1 => (usize::from(rest[0] & 0x3f) << 8 | usize::from(rest[1]), 2),
            _ => panic!("no plain length: {}", bytes.escape_ascii()),
        };
        let (record, end) = rest[start..].split_at(len);
        assert_eq!((end[0], end.len()), (0, 1 + FOOTER));
        Self {
            head: head.to_vec(),
            record: record.to_vec(),
            version: [end[1], end[2]],
        }
    }

    pub fn write(&self) -> Vec<u8> {
        let mut body = self.head.clone();
        let len = u32::try_from(self.record.len()).unwrap();
        match len {
            0..=0x3f => body.push(len as u8),
            0x40..=0x3fff => body.extend((len as u16 | 0x4000).to_be_bytes()),
            _ => {
                body.push(0x80);
                body.extend(len.to_be_bytes());
            }
        }
        body.extend(&self.record);
        body.push(0);
        sealed(body, self.version)
    }

    /// The fence of the first hold.
    pub fn fence(&self) -> u64 {
        self.u64_at(3)
    }

    /// The deadline of the first hold.
    pub fn deadline_ms(&self) -> u64 {
        self.u64_at(3 + 8)
    }

    pub fn set_fence(&mut self, fence: u64) {
        self.record[3..3 + 8].copy_from_slice(&fence.to_le_bytes());
    }

    fn u64_at(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.record[at..at + 8].try_into().unwrap())
    }
}

/// Appends a footer that fits the rest of a payload.
pub fn sealed(mut body: Vec<u8>, version: [u8; 2]) -> Vec<u8> {
    body.extend(version);
    let crc = crc64(&body);
    body.extend(crc.to_le_bytes());
    body
}
