//! Branch names, by the rules of `git check-ref-format --branch`.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Result};

/// A branch's name without `refs/heads/`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BranchName(Arc<str>);

impl BranchName {
    /// Longest accepted name in bytes; a ref is also a file's path on many servers.
    pub const MAX_LEN: usize = 255;

    /// Checks a name by git's rules, before anything is sent.
    ///
    /// # Errors
    /// `Usage`, saying which rule the name breaks.
    pub fn parse(text: &str) -> Result<Self> {
        let refuse = |why: &str| Err(Error::usage(format!("{text:?} is not a branch name: {why}")));
        if text.is_empty() || text.len() > Self::MAX_LEN {
            return refuse("expected 1 to 255 bytes");
        }
        if text.bytes().any(|b| b <= b' ' || b == 0x7f) {
            return refuse("it contains a blank or a control character");
        }
        if let Some(bad) = text.chars().find(|c| matches!(c, '~' | '^' | ':' | '?' | '*' | '[' | '\\')) {
            return refuse(&format!("it contains {bad:?}"));
        }
        if text.starts_with('-') {
            return refuse("it starts with a dash");
        }
        if text.contains("..") || text.contains("@{") {
            return refuse("it contains \"..\" or \"@{\"");
        }
        if text == "@" || text == "HEAD" {
            return refuse("this name is reserved by git");
        }
        if text.split('/').any(|part| part.is_empty() || part.starts_with('.') || part.ends_with(".lock")) || text.ends_with('.') {
            return refuse("a part of it is empty, starts with a dot or ends in \".lock\", or the name ends with a dot");
        }
        if let Some(rest) = text.strip_prefix("refs/") {
            return Err(Error::usage(format!("{text:?} is a full ref: only branches are accepted")).hint(
                match rest.strip_prefix("heads/") {
                    Some(name) => format!("write {name:?}"),
                    None => String::from("give the commit id instead"),
                },
            ));
        }
        Ok(Self(text.into()))
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the full name of the branch's ref.
    #[must_use]
    pub fn full_ref(&self) -> String {
        format!("refs/heads/{}", self.0)
    }
}

impl fmt::Display for BranchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for BranchName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl Serialize for BranchName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for BranchName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_gits_rules() {
        for good in ["main", "feature/x", "a.b", "ünï", "a@b", "x-y", "0", "a/HEAD"] {
            assert!(BranchName::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "-x",
            "a..b",
            "a@{1}",
            "@",
            "HEAD",
            "a.lock",
            "a.lock/b",
            ".a",
            "a/.b",
            "/a",
            "a/",
            "a//b",
            "a b",
            "a\tb",
            "a\u{7f}",
            "a~1",
            "a^",
            "a:b",
            "a?",
            "a*",
            "[a",
            "a\\b",
            "a.",
            "refs/heads/main",
            "refs/tags/v1",
            "a\n",
        ] {
            assert!(BranchName::parse(bad).is_err(), "{bad:?}");
        }
    }
}
