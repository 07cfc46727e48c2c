//! The token of a lock with one hold, stored in few bytes. There may be millions of such locks.
//!
//! Most tokens are the text of a UUID, or 16 random bytes in hexadecimal digits. They are stored as
//! the 16 bytes that the digits encode, which need no memory of their own. Short tokens are stored
//! in place, too.

use super::token::Token;

/// A stored token. A token has exactly one form, so equal tokens compare equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CompactToken {
    /// 32 lower-case hexadecimal digits, with the dashes of a UUID or without any.
    Digits {
        /// Whether the text has the dashes of a UUID.
        dashed: bool,
        /// The bytes that the digits stand for.
        bytes: [u8; 16],
    },
    /// The first `len` of the bytes; the others are 0.
    Short {
        /// How many bytes the token has.
        len: u8,
        /// The token, then zeros.
        bytes: [u8; SHORT],
    },
    /// All other tokens.
    Long(Box<[u8]>),
}

/// The length of the longest token that is stored in place as it is.
const SHORT: usize = 22;

/// The length of a UUID as text: groups of 8, 4, 4, 4 and 12 digits, with dashes between them.
const UUID_LEN: usize = 36;

/// The text of a stored token. It is built where the stored form is not the text itself.
#[derive(Clone, Copy, Debug)]
pub enum TokenText<'a> {
    /// The stored bytes are the text.
    Stored(Token<'a>),
    /// The text of 32 digits.
    Hex([u8; 32]),
    /// The text of a UUID.
    Uuid([u8; UUID_LEN]),
}

impl TokenText<'_> {
    /// The token.
    pub fn as_token(&self) -> Token<'_> {
        match self {
            Self::Stored(token) => *token,
            Self::Hex(text) => Token::from_stored(text),
            Self::Uuid(text) => Token::from_uuid(text),
        }
    }

    /// The token's text.
    pub fn as_bytes(&self) -> &[u8] {
        self.as_token().as_bytes()
    }
}

impl CompactToken {
    /// Whether this is that token.
    pub fn is(&self, token: Token<'_>) -> bool {
        match self {
            Self::Short { len, bytes } => bytes.get(..usize::from(*len)) == Some(token.as_bytes()),
            Self::Long(bytes) => **bytes == *token.as_bytes(),
            // Most others differ in the last digits, also those of one clock.
            Self::Digits { dashed, bytes } => {
                token.as_bytes().last_chunk() == Some(&last_digits(bytes))
                    && encoded_bytes(token, *dashed) == Some(*bytes)
            }
        }
    }

    /// The token's text.
    #[inline]
    pub fn text(&self) -> TokenText<'_> {
        match self {
            Self::Digits { dashed, bytes } => {
                let digits = digits_of(bytes);
                if *dashed {
                    TokenText::Uuid(with_dashes(&digits))
                } else {
                    TokenText::Hex(digits)
                }
            }
            Self::Short { len, bytes } => {
                let bytes = bytes.get(..usize::from(*len)).unwrap_or_default();
                TokenText::Stored(Token::from_stored(bytes))
            }
            Self::Long(bytes) => TokenText::Stored(Token::from_stored(bytes)),
        }
    }

    /// The number of bytes that it has on the heap.
    pub const fn heap_bytes(&self) -> usize {
        match self {
            Self::Long(bytes) => bytes.len(),
            Self::Digits { .. } | Self::Short { .. } => 0,
        }
    }
}

impl From<Token<'_>> for CompactToken {
    fn from(token: Token<'_>) -> Self {
        for dashed in [true, false] {
            if let Some(bytes) = encoded_bytes(token, dashed) {
                return Self::Digits { dashed, bytes };
            }
        }
        let bytes = token.as_bytes();
        let mut short = [0; SHORT];
        match (short.get_mut(..bytes.len()), u8::try_from(bytes.len())) {
            (Some(target), Ok(len)) => {
                target.copy_from_slice(bytes);
                Self::Short { len, bytes: short }
            }
            _ => Self::Long(bytes.into()),
        }
    }
}

/// The bytes that a token of 32 digits encodes. `dashed` says whether it has the dashes of a UUID.
/// `None` if the token is not such a text.
fn encoded_bytes(token: Token<'_>, dashed: bool) -> Option<[u8; 16]> {
    let text = token.as_bytes();
    if dashed {
        bytes_of(&without_dashes(text.try_into().ok()?)?)
    } else {
        bytes_of(text.try_into().ok()?)
    }
}

/// The digits of a UUID's text. `None` if its dashes are not where they belong.
fn without_dashes(text: &[u8; UUID_LEN]) -> Option<[u8; 32]> {
    if [text[8], text[13], text[18], text[23]] != *b"----" {
        return None;
    }
    let mut digits = [0; 32];
    digits[..8].copy_from_slice(&text[..8]);
    digits[8..12].copy_from_slice(&text[9..13]);
    digits[12..16].copy_from_slice(&text[14..18]);
    digits[16..20].copy_from_slice(&text[19..23]);
    digits[20..].copy_from_slice(&text[24..]);
    Some(digits)
}

fn with_dashes(digits: &[u8; 32]) -> [u8; UUID_LEN] {
    let mut text = [b'-'; UUID_LEN];
    text[..8].copy_from_slice(&digits[..8]);
    text[9..13].copy_from_slice(&digits[8..12]);
    text[14..18].copy_from_slice(&digits[12..16]);
    text[19..23].copy_from_slice(&digits[16..20]);
    text[24..].copy_from_slice(&digits[20..]);
    text
}

/// The bytes that the digits encode. `None` if they are not all lower-case hexadecimal digits.
///
/// The loops have no branches, so that the compiler vectorizes them.
fn bytes_of(digits: &[u8; 32]) -> Option<[u8; 16]> {
    let mut values = [0; 32];
    let mut bad = false;
    for (value, digit) in values.iter_mut().zip(digits) {
        let (decimal, letter) = (digit.wrapping_sub(b'0'), digit.wrapping_sub(b'a'));
        let (is_decimal, is_letter) = (decimal < 10, letter < 6);
        *value = if is_decimal {
            decimal
        } else {
            letter.wrapping_add(10)
        };
        bad |= !(is_decimal | is_letter);
    }
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(values.chunks_exact(2)) {
        if let [high, low] = pair {
            *byte = (high << 4) | (low & 15);
        }
    }
    (!bad).then_some(bytes)
}

/// The digits that stand for the bytes. Its loops have no branches, either.
#[inline(never)] // Together with the dashes it is not vectorized.
fn digits_of(bytes: &[u8; 16]) -> [u8; 32] {
    let halves = bytes.map(|byte| u16::from(byte >> 4) | (u16::from(byte & 15) << 8));
    let mut digits = [0; 32];
    for (pair, halves) in digits.chunks_exact_mut(2).zip(halves) {
        pair.copy_from_slice(&halves.to_le_bytes());
    }
    digits.iter_mut().for_each(|half| *half = digit(*half));
    digits
}

const fn last_digits(bytes: &[u8; 16]) -> [u8; 2] {
    let [.., last] = *bytes;
    [digit(last >> 4), digit(last & 15)]
}

const fn digit(value: u8) -> u8 {
    let letter = value.wrapping_add(b'a'.wrapping_sub(10));
    let decimal = value.wrapping_add(b'0');
    if value < 10 {
        decimal
    } else {
        letter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "0f3c1b2a-8a51-4d0e-9f0b-6f2f0f6f3a11";

    fn kept(text: &[u8]) -> CompactToken {
        let token = Token::new(text).unwrap();
        let kept = CompactToken::from(token);
        assert_eq!(kept.text().as_token(), token, "{text:?}");
        assert!(kept.is(token), "{text:?}");
        kept
    }

    fn is_digits(kept: &CompactToken) -> bool {
        matches!(kept, CompactToken::Digits { .. })
    }

    #[test]
    fn hexadecimal_digits_are_stored_as_the_bytes_that_they_encode() {
        assert!(is_digits(&kept(UUID.as_bytes())));
        assert!(is_digits(&kept(UUID.replace('-', "").as_bytes())));
        assert!(is_digits(&kept(&[b'0'; 32])));
        assert!(is_digits(&kept(&[b'f'; 32])));
        for at in 0..UUID.len() {
            let mut text = UUID.as_bytes().to_vec();
            for other in [b'A', b'g', b'/', b':', b'`', b'-', 0, 0xff] {
                let same = text[at] == other;
                text[at] = other;
                assert_eq!(is_digits(&kept(&text)), same, "{}", text.escape_ascii());
                text[at] = UUID.as_bytes()[at];
            }
        }
    }

    #[test]
    fn every_token_comes_back_and_is_equal_to_no_other() {
        let long = [b'x'; 512];
        let mut texts: Vec<Vec<u8>> = (1..=512).map(|len| long[..len].to_vec()).collect();
        for text in [
            UUID,
            "a",
            "b",
            "\0",
            &UUID[1..],
            "0f3c1b2a8a514d0e9f0b6f2f0f6f3a11",
        ] {
            texts.push(text.into());
            texts.push([text.as_bytes(), b"\0"].concat());
        }
        for one in &texts {
            let kept_one = kept(one);
            assert_eq!(
                is_digits(&kept_one),
                [32, 36].contains(&one.len()) && one[0] == b'0'
            );
            let in_place = one.len() <= SHORT || is_digits(&kept_one);
            assert_eq!(kept_one.heap_bytes(), if in_place { 0 } else { one.len() });
            for other in &texts {
                let token = Token::new(other).unwrap();
                assert_eq!(kept_one.is(token), one == other);
                assert_eq!(kept_one == CompactToken::from(token), one == other);
            }
        }
    }

    #[test]
    fn it_is_small() {
        assert_eq!(std::mem::size_of::<CompactToken>(), 24);
    }
}
