//! A checkpoint as a folder on disk: its `/workspace`, and with a repository a `.git` at the session's last commit, or at the pin.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::checkpoint::inspect::OpenCheckpoint;
use crate::checkpoint::materialise::{self, MaterialiseOptions, Materialised};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::repository::export;
use crate::repository::session_git::SessionGit;
use crate::workspace::diff;

/// Writes the folder; it appears all at once.
pub(crate) async fn open(context: &Context, checkpoint: &OpenCheckpoint, to: &Path, options: &MaterialiseOptions) -> Result<Materialised> {
    let root = &checkpoint.checkpoint().root;
    let Some(pin) = &root.pin else {
        return materialise::materialise(&context.reader, &root.workspace, to, options).await;
    };
    free(to)?;
    let imported = context.imported(root).await?;
    let git = match &root.git {
        Some(git) => Some(SessionGit::open(&context.reader, git).await?),
        None => None,
    };
    // What is as it was at the last commit can be entered in the index as it was; git need not look at it.
    let committed = git.as_ref().map_or(&imported.workspace, |git| &git.files);
    let changes = diff::diff(&context.reader, committed, &context.reader, &root.workspace).await?;
    let changed: HashSet<Vec<u8>> = changes.into_iter().map(|change| change.path.to_vec()).collect();
    let staging = staging(context, to)?;
    let made = materialise::materialise(&context.reader, &root.workspace, &staging, options).await?;
    let done = match export::write_git_dir(&context.reader, &imported, git.as_ref(), pin, &staging, changed).await {
        Ok(()) => {
            std::fs::rename(&staging, to).map_err(|error| Error::local(format!("{} can't be put in place", to.display())).source(error))
        }
        Err(error) => Err(error),
    };
    if done.is_err()
        && let Err(error) = std::fs::remove_dir_all(&staging)
    {
        tracing::warn!(folder = %staging.display(), %error, "a half-made folder could not be removed");
    }
    done.map(|()| made)
}

/// Checks early what the rename would find late.
fn free(to: &Path) -> Result<()> {
    let taken = match std::fs::symlink_metadata(to) {
        Err(_) => false,
        Ok(metadata) => !metadata.is_dir() || std::fs::read_dir(to).is_ok_and(|mut entries| entries.next().is_some()),
    };
    if taken {
        return Err(Error::conflict(format!("{} is there already and isn't an empty folder", to.display()))
            .code("target_exists")
            .hint("name a folder that doesn't exist yet"));
    }
    Ok(())
}

/// Returns a folder beside the target that no other call uses.
fn staging(context: &Context, to: &Path) -> Result<PathBuf> {
    let nonce = hex::encode(crate::random::bytes::<8>(&**context.store.random()));
    let name = to.file_name().ok_or_else(|| Error::usage(format!("{} can't name a folder", to.display())))?;
    let mut staging = std::ffi::OsString::from(".");
    staging.push(name);
    staging.push(format!(".landfall-open-{nonce}"));
    Ok(to.with_file_name(staging))
}
