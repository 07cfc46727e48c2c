//! The hash slots of a cluster: to which slot a key belongs.

/// The number of slots in a cluster.
const SLOTS: u16 = 16_384;

/// The slot of a key. Only the hash tag counts: the part in the key's first braces, if it is not
/// empty. A key without a hash tag counts as a whole.
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) % SLOTS
}

/// A key that begins with `head` and belongs to a slot that `is_wanted` accepts. `None` if it
/// accepts no slot of a cluster.
pub fn key_in(head: &str, is_wanted: impl Fn(u16) -> bool) -> Option<String> {
    // Some number below this limit hashes to each slot, as a test shows.
    let tags = 0..u32::from(SLOTS).saturating_mul(16);
    let tag = tags
        .map(|tag| tag.to_string())
        .find(|tag| is_wanted(slot_of(tag.as_bytes())))?;
    Some(format!("{head}{{{tag}}}"))
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
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
        assert_eq!(key_in("head:", |_| false), None);
    }
}
