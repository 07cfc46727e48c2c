//! The owner's name.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// Why some bytes are not a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// No bytes at all.
    Empty,
    /// More than [`Token::MAX_LEN`] bytes.
    TooLong,
}

/// An owner's name, borrowed: 1 to 512 bytes of any value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token<'a>(&'a [u8]);

impl<'a> Token<'a> {
    /// The longest token in bytes.
    pub const MAX_LEN: usize = 512;

    /// Reads a token.
    ///
    /// # Errors
    /// When there are no bytes, or too many.
    pub const fn new(bytes: &'a [u8]) -> Result<Self, TokenError> {
        match bytes.len() {
            0 => Err(TokenError::Empty),
            1..=Self::MAX_LEN => Ok(Self(bytes)),
            _ => Err(TokenError::TooLong),
        }
    }

    /// The token that is the text of a UUID.
    pub const fn from_uuid(text: &'a [u8; 36]) -> Self {
        Self(text)
    }

    /// The bytes of a token that was taken apart, or of none: then it is no token of anybody's.
    pub(super) const fn of_kept(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl fmt::Debug for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.0.escape_ascii())
    }
}

/// An owner's name, kept. Cheap to clone: an index and the table that it serves share the bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenBuf(Arc<[u8]>);

impl TokenBuf {
    /// The borrowed form.
    pub fn as_token(&self) -> Token<'_> {
        Token(&self.0)
    }
}

impl From<Token<'_>> for TokenBuf {
    fn from(token: Token<'_>) -> Self {
        Self(token.0.into())
    }
}

/// Lets a map that is keyed by `TokenBuf` be asked with the bytes of a request.
impl Borrow<[u8]> for TokenBuf {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for TokenBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_token().fmt(f)
    }
}
