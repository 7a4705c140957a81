//! Secrets: values that can't be printed, serialised or compared by accident, and the masking of texts that might hold one.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};

/// Shortest accepted secret in bytes. Shorter ones could not be masked without hiding ordinary words.
pub const MIN_SECRET_LEN: usize = 16;

/// A secret text. It has no `Display`, `Serialize` or `PartialEq`, and its `Debug` shows nothing.
#[derive(Clone)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Takes a secret's text; blanks at the ends (a file's newline) are dropped.
    ///
    /// # Errors
    /// `Config` when fewer than [`MIN_SECRET_LEN`] bytes are left; the message holds only the credential's name.
    pub fn new(name: &str, text: &str) -> Result<Self> {
        let text = text.trim();
        if text.len() < MIN_SECRET_LEN {
            return Err(Error::config(format!("the credential {name} is shorter than {MIN_SECRET_LEN} bytes"))
                .code("secret_too_short")
                .hint("shorter secrets can't be kept out of logs and records: give the credential's real value"));
        }
        if text.chars().any(char::is_control) {
            return Err(Error::config(format!("the credential {name} holds control characters")).code("secret_malformed"));
        }
        Ok(Self(text.into()))
    }

    /// Returns the text, for the one place that sends it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Replaces secrets in texts before they reach a log, a record or an error.
#[derive(Clone, Default)]
pub struct Mask(Arc<[String]>);

impl Mask {
    /// Makes a mask for these secrets, in every form a text could hold one: as it is, in base64 (also after `user:`), in hex and percent-encoded.
    #[must_use]
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let mut forms = Vec::new();
        for secret in secrets {
            let raw = secret.expose();
            forms.push(raw.to_owned());
            forms.push(hex::encode(raw));
            forms.push(hex::encode_upper(raw));
            let percent: String = url::form_urlencoded::byte_serialize(raw.as_bytes()).collect();
            if percent != raw {
                forms.push(percent);
            }
            // The three alignments of a text inside a longer base64 text; the ends depend on the neighbours and are left out.
            for lead in 0..3 {
                let mut padded = vec![0; lead];
                padded.extend_from_slice(raw.as_bytes());
                let whole = padded.len() / 3 * 3;
                let skip = if lead == 0 { 0 } else { 4 };
                for form in [base64(&padded[..whole], STANDARD), base64(&padded[..whole], URL_SAFE)] {
                    if let Some(inner) = form.get(skip..).filter(|inner| inner.len() >= 12) {
                        forms.push(inner.to_owned());
                    }
                }
            }
        }
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        forms.dedup();
        Self(forms.into())
    }

    /// Returns `text` with each form of a secret replaced by `[masked]`.
    #[must_use]
    pub fn apply<'t>(&self, text: &'t str) -> std::borrow::Cow<'t, str> {
        let mut text = std::borrow::Cow::Borrowed(text);
        for form in self.0.iter() {
            if text.contains(form.as_str()) {
                text = text.replace(form.as_str(), "[masked]").into();
            }
        }
        text
    }

    /// Tells whether `bytes` hold a form of a secret.
    #[must_use]
    pub fn found_in(&self, bytes: &[u8]) -> bool {
        self.0.iter().any(|form| bytes.windows(form.len()).any(|window| window == form.as_bytes()))
    }
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mask({} forms)", self.0.len())
    }
}

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Encodes whole groups of three bytes (RFC 4648 section 4 and 5); what is left over at the end is not needed here.
fn base64(bytes: &[u8], alphabet: &[u8; 64]) -> String {
    let digit = |bits: u32| alphabet[(bits & 63) as usize] as char;
    let mut text = String::with_capacity(bytes.len() / 3 * 4);
    for group in bytes.chunks_exact(3) {
        let bits = u32::from(group[0]) << 16 | u32::from(group[1]) << 8 | u32::from(group[2]);
        text.extend([digit(bits >> 18), digit(bits >> 12), digit(bits >> 6), digit(bits)]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "ghp_0123456789abcdefABCDEF+/=x";

    #[test]
    fn every_form_is_masked() {
        let secret = Secret::new("T", TOKEN).unwrap();
        let mask = Mask::new([&secret]);
        let basic = "eC1hY2Nlc3MtdG9rZW46Z2hwXzAxMjM0NTY3ODlhYmNkZWZBQkNERUYrLz14"; // x-access-token:TOKEN in base64
        for form in [
            TOKEN.to_owned(),
            hex::encode(TOKEN),
            hex::encode_upper(TOKEN),
            basic.to_owned(),
            TOKEN.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D"),
        ] {
            let text = format!("before {form} after");
            let masked = mask.apply(&text);
            assert!(masked.contains("[masked]"), "{form}");
            assert!(mask.found_in(text.as_bytes()));
            assert!(!masked.contains("0123456789abcdef"), "{masked}");
        }
        assert_eq!(mask.apply("nothing here"), "nothing here");
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }

    #[test]
    fn short_and_malformed_secrets_are_refused_without_showing_them() {
        let error = Secret::new("MY_KEY", "hunter2\n").unwrap_err();
        assert_eq!(error.stable_code(), "secret_too_short");
        assert!(!format!("{error:?}").contains("hunter2"));
        assert!(Secret::new("MY_KEY", "0123456789abcdef\u{1}0").is_err());
    }
}
