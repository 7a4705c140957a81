//! Putting files back as a commit has them: no content is read or copied.

use super::checkout::GitMode;
use super::status::{FileView, StatusChange};
use crate::error::Result;
use crate::workspace::fault::{FsError, FsResult};
use crate::workspace::handle::Handle;
use crate::workspace::list;
use crate::workspace::put::{LeafBody, StoredLeaf};
use crate::workspace::source::Source;
use crate::workspace::stat::{Follow, Kind};

/// Takes changes back in the filesystem below `top`: what was added goes, what was changed or deleted comes back.
///
/// # Errors
/// `NotDirectory` when a folder of a path is a file or a link now; those of [`Handle::put_at`]. What was taken back before stays so.
pub async fn discard(source: &dyn Source, top: &Handle, changes: &[StatusChange]) -> FsResult<()> {
    // Removals first, the deepest names first: a directory may stand where a file comes back.
    for change in changes.iter().rev().filter(|change| change.before.is_none()) {
        beneath_no_link(top, &change.path).await?;
        top.unlink_file_at(&change.path).await?;
        remove_empty_folders(top, &change.path).await?;
    }
    for change in changes {
        let Some(before) = &change.before else { continue };
        make_folders(top, &change.path).await?;
        match leaf(source, before).await? {
            Some(leaf) => top.put_at(&change.path, &leaf).await?,
            // A submodule is an empty directory.
            None => match top.create_directory_at(&change.path).await {
                Ok(()) | Err(FsError::Exist) => {}
                Err(error) => return Err(error),
            },
        }
    }
    Ok(())
}

async fn leaf(source: &dyn Source, view: &FileView) -> Result<Option<StoredLeaf>> {
    let body = match view.mode {
        GitMode::Submodule => return Ok(None),
        GitMode::Symlink => LeafBody::Symlink(list::read(source, &view.content, view.size, 0..view.size).await?),
        GitMode::File | GitMode::Executable => LeafBody::File { size: view.size, content: view.content.clone() },
    };
    Ok(Some(StoredLeaf { mode: view.permissions, modified: view.modified, body }))
}

fn folders(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &path[..at])
}

/// Refuses a path that leads through a link: what it names is elsewhere.
async fn beneath_no_link(top: &Handle, path: &[u8]) -> FsResult<()> {
    for folder in folders(path) {
        if top.stat_at(folder, Follow::No).await?.kind != Kind::Directory {
            return Err(FsError::NotDirectory);
        }
    }
    Ok(())
}

async fn make_folders(top: &Handle, path: &[u8]) -> FsResult<()> {
    for folder in folders(path) {
        match top.stat_at(folder, Follow::No).await {
            Ok(found) if found.kind == Kind::Directory => {}
            Ok(_) => return Err(FsError::NotDirectory),
            Err(FsError::NoEntry) => top.create_directory_at(folder).await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Git keeps no empty directories: those that a removal leaves go too.
async fn remove_empty_folders(top: &Handle, path: &[u8]) -> FsResult<()> {
    for folder in folders(path).rev() {
        match top.remove_directory_at(folder).await {
            Ok(()) => {}
            Err(FsError::NotEmpty) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
