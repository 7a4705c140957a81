//! Looking for secrets in a stream: across the borders of its chunks, and under percent-encoding of any of its characters.

use bytes::{Bytes, BytesMut};

use super::Mask;

/// A secret was found in a stream. What was held back of it must not be passed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leak;

/// Looks through one stream. Bytes that could be the beginning of a secret are held back until more is known.
#[derive(Debug)]
pub struct Scanner {
    mask: Mask,
    held: BytesMut,
}

impl Scanner {
    pub(super) fn new(mask: Mask) -> Self {
        Self { mask, held: BytesMut::new() }
    }

    /// Takes the next chunk and returns what may be passed on, which can be less or more than the chunk.
    ///
    /// # Errors
    /// [`Leak`]: the stream holds a secret, and nothing more of it may be passed on.
    pub fn push(&mut self, chunk: Bytes) -> Result<Bytes, Leak> {
        if self.mask.0.is_none() || chunk.is_empty() {
            return Ok(chunk);
        }
        let whole = if self.held.is_empty() {
            chunk
        } else {
            self.held.extend_from_slice(&chunk);
            self.held.split().freeze()
        };
        if self.leaks(&whole) {
            return Err(Leak);
        }
        let keep = self.beginning(&whole);
        self.held.extend_from_slice(&whole[whole.len() - keep..]);
        Ok(whole.slice(..whole.len() - keep))
    }

    /// Ends the stream and returns what was held back: it was only a beginning.
    #[must_use]
    pub fn finish(&mut self) -> Bytes {
        self.held.split().freeze()
    }

    fn leaks(&self, bytes: &[u8]) -> bool {
        self.mask.found_in(bytes) || (bytes.contains(&b'%') && self.mask.found_in(&decode(bytes).0))
    }

    /// Returns how many bytes at the end could be the beginning of a secret.
    fn beginning(&self, bytes: &[u8]) -> usize {
        let Some(forms) = &self.mask.0 else { return 0 };
        // Each byte of a form can be three of the stream.
        let tail = &bytes[bytes.len().saturating_sub(3 * forms.longest)..];
        let plain = longest_beginning(forms, tail);
        if !tail.contains(&b'%') {
            return plain;
        }
        let (decoded, starts) = decode(tail);
        let encoded = longest_beginning(forms, &decoded);
        let from = starts.get(decoded.len() - encoded).copied().unwrap_or(tail.len());
        plain.max(tail.len() - from)
    }
}

/// Returns the length of the longest end of `bytes` that is a beginning of a form, without being the whole.
fn longest_beginning(forms: &super::Forms, bytes: &[u8]) -> usize {
    let most = bytes.len().min(forms.longest.saturating_sub(1));
    (1..=most)
        .rev()
        .find(|length| {
            let end = &bytes[bytes.len() - length..];
            forms.texts.iter().any(|form| form.len() > *length && form.as_bytes()[..*length].eq_ignore_ascii_case(end))
        })
        .unwrap_or(0)
}

/// Decodes percent-encoding (RFC 3986 2.1) and returns where each byte began. An escape that is cut off at the end is left out, and
/// its place is the last one.
fn decode(bytes: &[u8]) -> (Vec<u8>, Vec<usize>) {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let (mut decoded, mut starts, mut at) = (Vec::with_capacity(bytes.len()), Vec::with_capacity(bytes.len() + 1), 0);
    while at < bytes.len() {
        let rest = &bytes[at..];
        if rest[0] == b'%' && rest.len() < 3 && rest[1..].iter().all(u8::is_ascii_hexdigit) {
            break;
        }
        starts.push(at);
        match (rest[0], digit(rest.get(1)), digit(rest.get(2))) {
            (b'%', Some(high), Some(low)) => {
                decoded.push(u8::try_from(high << 4 | low).unwrap_or(0));
                at += 3;
            }
            _ => {
                decoded.push(rest[0]);
                at += 1;
            }
        }
    }
    starts.push(at);
    (decoded, starts)
}
