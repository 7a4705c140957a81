//! Whether a chosen commit lies on a branch: the branch's history is fetched without its files, where the server can do that, and looked
//! through. One commit by itself can't tell.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::branch::BranchName;
use super::connect::What;
use super::fetch::prepare;
use super::local;
use super::remote::{Access, Git, Revision};
use crate::error::{Error, Result};
use crate::id::CommitId;

/// Finds an access's commit in the history of a branch, or of the remote's own when none is named, and returns the branch's name. Blocking.
///
/// # Errors
/// `Denied` (`commit_not_on_branch`) when it isn't among the newest commits that are looked through; as the fetch.
pub(super) fn check(
    git: &Git,
    access: &Access,
    branch: Option<&BranchName>,
    directory: &Path,
    interrupt: &Arc<AtomicBool>,
) -> Result<Option<String>> {
    let (commit, depth) = (access.pin().commit, git.options().history_depth.max(1));
    let (name, tip, found) = match access.url.file_path() {
        Some(path) => {
            let tip = local::resolve(&access.url, &path, &branch.cloned().map_or(Revision::Default, Revision::Branch))?;
            let found = in_history(&path, tip.commit, commit, depth, interrupt)?;
            (tip.branch, tip.commit, found)
        }
        None => {
            let mut connection = git.connect(&access.url, access.credential.as_ref(), Arc::clone(interrupt))?;
            let (name, tip) = match branch {
                Some(branch) => (Some(branch.to_string()), connection.branch(branch)?),
                None => connection.head()?,
            };
            if tip == commit {
                return Ok(name);
            }
            let packs = prepare(directory)?;
            let depth = NonZeroU32::new(depth).unwrap_or(NonZeroU32::MIN);
            connection.fetch_commit(tip, depth, What::Commits, directory, &packs, git.options(), None)?;
            let found = in_history(directory, tip, commit, depth.get(), interrupt)?;
            (name, tip, found)
        }
    };
    if found {
        return Ok(name);
    }
    let shown = name.unwrap_or_else(|| String::from("HEAD"));
    Err(Error::denied(format!("commit {commit} isn't among the newest {depth} commits of branch {shown} of {}", access.url))
        .code("commit_not_on_branch")
        .hint(format!("choose a commit that {shown} contains (its tip is {tip}); the agent's entry has require_commit_on_branch = true")))
}

/// Walks from `tip` to all that it stands on, as far as it was fetched, and at most `most` commits.
fn in_history(git_dir: &Path, tip: CommitId, wanted: CommitId, most: u32, interrupt: &AtomicBool) -> Result<bool> {
    let repository =
        gix::open_opts(git_dir, gix::open::Options::isolated()).map_err(|_| Error::local("the temporary git directory can't be opened"))?;
    let wanted = gix::ObjectId::from_bytes_or_panic(wanted.as_bytes());
    let tip = gix::ObjectId::from_bytes_or_panic(tip.as_bytes());
    let (mut seen, mut waiting) = (HashSet::from([tip]), std::collections::VecDeque::from([tip]));
    let mut looked = 0;
    while let Some(id) = waiting.pop_front() {
        if id == wanted {
            return Ok(true);
        }
        looked += 1;
        if looked >= most {
            return Ok(false);
        }
        if interrupt.load(Ordering::Relaxed) {
            return Err(Error::cancelled("the fetch was cancelled"));
        }
        // Where the history was cut the parents aren't there.
        let Ok(commit) = repository.find_commit(id) else { continue };
        waiting.extend(commit.parent_ids().map(gix::Id::detach).filter(|parent| seen.insert(*parent)));
    }
    Ok(false)
}
