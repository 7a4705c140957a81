//! The pin: which commit a session stands on. The repository resolves it, checkpoints carry it, guests are told it.

use serde::{Deserialize, Serialize};

use crate::id::CommitId;

/// The commit that a session stands on; fixed by its first turn.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// The repository's URL, without user info.
    pub url: String,
    /// The branch it was resolved from, without `refs/heads/`; none when the commit was given and no branch was.
    pub branch: Option<String>,
    /// The commit.
    pub commit: CommitId,
    /// Whether the commit is known to lie on the branch.
    pub on_branch: OnBranch,
}

/// Whether a pinned commit lies on its branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnBranch {
    /// The branch's tip was resolved to it, or its history was looked through.
    Yes,
    /// It was given, and one commit of history can't tell.
    Unchecked,
}
