//! Payloads of DUMP, changed in such a way that RESTORE still accepts them.

use super::client::Client;

/// The footer of DUMP: the version of the RDB format and a checksum of everything before it.
const CHECKSUM_LEN: usize = 8;

/// Gives the server a fence an hour ahead of its clock, as from a server with another clock, and
/// some more. Returns the last one. No hold of them is left.
///
/// Fences follow the clock. A fence from the clock alone would hide that the largest fence was
/// lost.
#[track_caller]
pub fn raise_fences_by_an_hour(c: &mut Client) -> i64 {
    // The payload must contain the fence unchanged.
    c.call("CONFIG SET rdbcompression no");
    let fence = c.int("LOCK.ACQUIRE ahead me 60000");
    let ahead = fence + 3_600_000_000;
    let payload = c.call("DUMP ahead");
    let payload = with_fence(payload.as_bytes(), fence, ahead);
    assert_eq!(c.int("DEL ahead"), 1);
    c.restore("ahead 60000", &payload).assert_ok();
    assert_eq!(c.int("LOCK.RELEASE ahead me"), 1);
    // The first fence travels in the payload, these in effects.
    let more = (1..=5).map(|n| {
        let fence = c.int("LOCK.ACQUIRE ahead me 60000");
        assert_eq!(fence, ahead + n);
        c.int("LOCK.RELEASE ahead me");
        fence
    });
    more.max().unwrap()
}

/// The payload with another fence in place of one that occurs in it once.
#[track_caller]
fn with_fence(payload: &[u8], fence: i64, other: i64) -> Vec<u8> {
    let mut payload = payload.to_vec();
    let mut places = payload.windows(8).enumerate();
    let found = places.find(|(_, bytes)| *bytes == fence.to_le_bytes());
    let (at, _) = found.expect("the fence in the payload");
    payload[at..at + 8].copy_from_slice(&other.to_le_bytes());
    sign(&mut payload);
    payload
}

/// Recomputes the checksum.
fn sign(payload: &mut [u8]) {
    let end = payload.len() - CHECKSUM_LEN;
    let checksum = crc64(&payload[..end]);
    payload[end..].copy_from_slice(&checksum.to_le_bytes());
}

/// CRC-64 as the servers have it: Jones' polynomial, reflected, from 0, nothing at the end.
pub fn crc64(bytes: &[u8]) -> u64 {
    const TABLE: [u64; 256] = {
        let mut table = [0; 256];
        let mut n = 0;
        while n < 256 {
            let (mut crc, mut bit) = (n as u64, 0);
            while bit < 8 {
                crc = (crc >> 1) ^ (0x95ac_9329_ac4b_c9b5 * (crc & 1));
                bit += 1;
            }
            table[n] = crc;
            n += 1;
        }
        table
    };
    bytes.iter().fold(0, |crc, byte| {
        (crc >> 8) ^ TABLE[usize::from(*byte ^ crc as u8)]
    })
}

#[test]
fn the_computed_checksum_matches_the_server() {
    assert_eq!(crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
}
