//! The hash slots of a cluster: to which slot a key belongs.

/// The number of slots in a cluster.
pub const SLOTS: u16 = 16_384;

/// The slot of a key.
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(hashed_part(key)) % SLOTS
}

/// The part of a key that decides on its slot. It is the hash tag: what is in the key's first
/// braces, if that is not empty. Without a hash tag it is the whole key.
fn hashed_part(key: &[u8]) -> &[u8] {
    hash_tag(key).unwrap_or(key)
}

/// A key that begins with `head`, which has no brace, and belongs to a slot that `is_wanted`
/// accepts. `None` if it accepts no slot of a cluster.
pub fn key_in(head: &str, is_wanted: impl Fn(u16) -> bool) -> Option<Vec<u8>> {
    let slot = (0..SLOTS).find(|slot| is_wanted(*slot))?;
    Some([head.as_bytes(), b"{", &tag_of(slot), b"}"].concat())
}

/// A hash tag of two bytes that belongs to a slot. There are four, one for each checksum of the
/// slot, and one of them has no closing brace, as a test shows.
fn tag_of(slot: u16) -> [u8; 2] {
    let tags = (0..4).map(|n| bytes_of(slot | (n << 14)).to_be_bytes());
    let mut fitting = tags.filter(|tag| !tag.contains(&b'}'));
    fitting.next().unwrap_or_default()
}

fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let (_, rest) = split_at_byte(key, b'{')?;
    let (tag, _) = split_at_byte(rest, b'}')?;
    (!tag.is_empty()).then_some(tag)
}

fn split_at_byte(bytes: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|b| *b == byte)?;
    let (head, rest) = bytes.split_at_checked(at)?;
    Some((head, rest.get(1..)?))
}

/// The CRC that the servers use, which is that of XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc: u16, _| {
            let carry = crc >> 15;
            (crc << 1) ^ (0x1021 & 0_u16.wrapping_sub(carry))
        })
    })
}

/// The two bytes that have this checksum.
fn bytes_of(crc: u16) -> u16 {
    (0..16).fold(crc, |crc: u16, _| match crc & 1 {
        0 => crc >> 1,
        _ => ((crc ^ 0x1021) >> 1) | 0x8000,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_xmodem() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(crc16(b""), 0);
    }

    #[test]
    fn only_the_part_in_the_first_braces_counts() {
        // As CLUSTER KEYSLOT answers.
        assert_eq!(slot_of(b"a"), 15_495);
        assert_eq!(slot_of(b"b"), 3_300);
        for key in ["{a}", "x{a}y", "{a}{b}", "{a}}"] {
            assert_eq!(slot_of(key.as_bytes()), 15_495, "{key}");
        }
        // These have no hash tag.
        for key in ["{}a", "{a", "}a{", "a}"] {
            assert_eq!(slot_of(key.as_bytes()), crc16(key.as_bytes()) % SLOTS);
        }
    }

    #[test]
    fn every_slot_has_a_key() {
        for slot in 0..SLOTS {
            let key = key_in("head:", |s| s == slot).unwrap();
            assert_eq!(slot_of(&key), slot, "{key:?}");
            assert!(key.starts_with(b"head:{") && key.len() == 9);
        }
        assert_eq!(key_in("head:", |_| false), None);
    }
}
