//! Secrets: values that can't be printed, serialised or compared by accident, and the masking of texts that might hold one.

mod forms;
mod scan;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use aho_corasick::AhoCorasick;
use zeroize::Zeroizing;

pub use scan::{Leak, Scanner};

use crate::error::{Error, Result};

/// Shortest accepted secret in bytes. Shorter ones could not be masked without hiding ordinary words.
pub const MIN_SECRET_LEN: usize = 16;

/// A secret text. It has no `Display`, `Serialize` or `PartialEq`, its `Debug` shows nothing, and its memory is overwritten in the end.
#[derive(Clone)]
pub struct Secret(Arc<Zeroizing<String>>);

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
        Ok(Self(Arc::new(Zeroizing::new(text.to_owned()))))
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

/// Finds secrets in texts before they reach a log, a record, an error or a guest.
#[derive(Clone, Default)]
pub struct Mask(Option<Arc<Forms>>);

/// Every form in which a text could hold one of the secrets.
struct Forms {
    texts: Vec<Zeroizing<String>>,
    automaton: AhoCorasick,
    longest: usize,
}

impl Mask {
    /// Makes a mask for these secrets, in every form a text could hold one: as it is, in base64 (also after `user:`), in hex and
    /// percent-encoded. Upper and lower case are the same to it.
    #[must_use]
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let texts = forms::of(secrets.into_iter().map(Secret::expose));
        if texts.is_empty() {
            return Self(None);
        }
        let built = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(aho_corasick::MatchKind::LeftmostLongest)
            .build(texts.iter().map(|text| text.as_bytes()));
        // It fails only for patterns of gigabytes, which no config can hold.
        let Ok(automaton) = built else { return Self(None) };
        let longest = texts.iter().map(|text| text.len()).max().unwrap_or(0);
        Self(Some(Arc::new(Forms { texts, automaton, longest })))
    }

    /// Returns `text` with each form of a secret replaced by `[masked]`.
    #[must_use]
    pub fn apply<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let Some(forms) = &self.0 else { return Cow::Borrowed(text) };
        let (mut masked, mut from) = (String::new(), 0);
        for found in forms.automaton.find_iter(text) {
            masked.push_str(text.get(from..found.start()).unwrap_or_default());
            masked.push_str("[masked]");
            from = found.end();
        }
        if from == 0 {
            return Cow::Borrowed(text);
        }
        masked.push_str(text.get(from..).unwrap_or_default());
        Cow::Owned(masked)
    }

    /// Tells whether `bytes` hold a form of a secret.
    #[must_use]
    pub fn found_in(&self, bytes: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|forms| forms.automaton.is_match(bytes))
    }

    /// Begins to look through a stream.
    #[must_use]
    pub fn scanner(&self) -> Scanner {
        Scanner::new(self.clone())
    }
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mask({} forms)", self.0.as_ref().map_or(0, |forms| forms.texts.len()))
    }
}

#[cfg(test)]
mod tests;
