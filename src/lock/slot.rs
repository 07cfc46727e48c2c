//! Hash slots of a cluster: which one a key belongs to.

/// How many slots a cluster has.
const SLOTS: u16 = 16_384;

/// The slot of a key: of the part in its first braces where that is not empty, else of all of it.
pub fn slot_of(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) % SLOTS
}

/// A key with this head whose slot is among those asked for. `None` when they are no slots of a cluster.
pub fn key_in(head: &str, is_asked_for: impl Fn(u16) -> bool) -> Option<String> {
    // Every slot has a number among the first 160,000: see the test.
    let tags = 0..u32::from(SLOTS).saturating_mul(16);
    let tag = tags
        .map(|tag| tag.to_string())
        .find(|tag| is_asked_for(slot_of(tag.as_bytes())))?;
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

/// The servers' CRC: XMODEM's.
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
    fn the_part_in_the_first_braces_counts() {
        // As CLUSTER KEYSLOT says.
        assert_eq!(slot_of(b"a"), 15_495);
        assert_eq!(slot_of(b"b"), 3_300);
        for key in ["{a}", "x{a}y", "{a}{b}", "{a}}"] {
            assert_eq!(slot_of(key.as_bytes()), 15_495, "{key}");
        }
        // These have none.
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
