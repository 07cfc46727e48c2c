//! The token: the owner's name.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// Why bytes are not a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// No bytes at all.
    Empty,
    /// More than [`Token::MAX_LEN`] bytes.
    TooLong,
}

/// A borrowed token: 1 to 512 bytes of any value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token<'a>(&'a [u8]);

impl<'a> Token<'a> {
    /// The length of the longest token, in bytes.
    pub const MAX_LEN: usize = 512;

    /// Reads a token.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Result<Self, TokenError> {
        match bytes.len() {
            0 => Err(TokenError::Empty),
            1..=Self::MAX_LEN => Ok(Self(bytes)),
            _ => Err(TokenError::TooLong),
        }
    }

    /// The token whose bytes are the text of a UUID.
    pub const fn from_uuid(text: &'a [u8; 36]) -> Self {
        Self(text)
    }

    /// A token out of bytes that were stored as one. They are not checked again.
    pub(super) const fn from_stored(bytes: &'a [u8]) -> Self {
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

/// An owned token. Clones are cheap and share the bytes, as an index and its table do.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenBuf(Arc<[u8]>);

impl TokenBuf {
    /// The borrowed form.
    pub fn as_token(&self) -> Token<'_> {
        Token(&self.0)
    }

    /// Where the bytes are, which its clones share.
    pub(super) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl From<Token<'_>> for TokenBuf {
    fn from(token: Token<'_>) -> Self {
        Self(token.0.into())
    }
}

/// Allows look-ups with the bytes of a request in a map with `TokenBuf` keys.
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
