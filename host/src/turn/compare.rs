//! Two checkpoints beside each other: which paths differ, and the difference as a patch.

use bytes::Bytes;

use crate::capability::types::{CHANGES_MAX, Change, ChangeKind, FileInfo, FileKind};
use crate::checkpoint::root::RootRecord;
use crate::error::{Error, Result};
use crate::repository::import::GitMode;
use crate::repository::patch::{self, Side, Style};
use crate::workspace::diff::{self, EntryView, What};
use crate::workspace::list;
use crate::workspace::source::Source;

/// Longest patch between two checkpoints, in bytes.
const PATCH_MAX: usize = 64 << 20;
/// Largest file whose content is put into a patch, in bytes: both sides are held in memory.
const FILE_MAX: u64 = 32 << 20;

/// Returns the paths at which two checkpoints differ, with `/workspace` or `/state` before each, sorted by bytes. Times of change alone
/// are no difference.
pub(crate) async fn changes(first: &dyn Source, before: &RootRecord, second: &dyn Source, after: &RootRecord) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    for (name, before, after) in [("/state", &before.state, &after.state), ("/workspace", &before.workspace, &after.workspace)] {
        for change in diff::diff(first, before, second, after).await? {
            let (before, after) = (change.before.as_ref().map(info), change.after.as_ref().map(info));
            let kind = match (&before, &after) {
                (None, None) => continue,
                (None, Some(_)) => ChangeKind::Added,
                (Some(_), None) => ChangeKind::Deleted,
                (Some(before), Some(after)) if before.kind != after.kind => ChangeKind::TypeChanged,
                (Some(_), Some(_)) => {
                    if change.before.as_ref().zip(change.after.as_ref()).is_some_and(|(before, after)| same(before, after)) {
                        continue;
                    }
                    ChangeKind::Modified
                }
            };
            if changes.len() >= CHANGES_MAX {
                return Err(Error::limit(format!("more than {CHANGES_MAX} paths differ"))
                    .code("changes")
                    .hint("compare nearer checkpoints"));
            }
            let path = [name.as_bytes(), b"/", &change.path].concat();
            changes.push(Change { path: path.into(), kind, before, after });
        }
    }
    Ok(changes)
}

/// Whether two items are the same but for their times.
fn same(before: &EntryView, after: &EntryView) -> bool {
    before.mode == after.mode
        && match (&before.what, &after.what) {
            // What differs below a directory has its own entry.
            (What::Directory, What::Directory) => true,
            (before, after) => before == after,
        }
}

fn info(item: &EntryView) -> FileInfo {
    let (kind, size) = match &item.what {
        What::File { size, .. } => (FileKind::File, *size),
        What::Directory => (FileKind::Directory, 0),
        What::Symlink(target) => (FileKind::Symlink, target.len() as u64),
    };
    FileInfo { kind, mode: item.mode, size, modified: item.mtime }
}

/// Returns the difference of two checkpoints' `/workspace` as a patch in git's form. `paths` as in the workspace, without a leading
/// slash; none means all.
pub(crate) async fn unified(
    first: &dyn Source,
    before: &RootRecord,
    second: &dyn Source,
    after: &RootRecord,
    paths: &[String],
) -> Result<Bytes> {
    let wanted = |path: &[u8]| {
        paths.is_empty()
            || paths.iter().any(|wanted| {
                let wanted = wanted.trim_matches('/').as_bytes();
                path.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
            })
    };
    let mut out = Vec::new();
    for change in diff::diff(first, &before.workspace, second, &after.workspace).await? {
        let both = change.before.as_ref().zip(change.after.as_ref());
        if !wanted(&change.path) || both.is_some_and(|(before, after)| same(before, after)) {
            continue;
        }
        let before = side(first, change.before.as_ref(), &change.path).await?;
        let after = side(second, change.after.as_ref(), &change.path).await?;
        if before.is_none() && after.is_none() {
            continue;
        }
        patch::write_file(&mut out, &change.path, before.as_ref(), &change.path, after.as_ref(), Style::default())?;
        if out.len() > PATCH_MAX {
            return Err(Error::limit(format!("the patch is longer than {PATCH_MAX} bytes"))
                .code("diff")
                .hint("name fewer paths, or open both checkpoints"));
        }
    }
    Ok(out.into())
}

/// Returns what git would keep of an item; nothing for a directory.
async fn side(source: &dyn Source, item: Option<&EntryView>, path: &[u8]) -> Result<Option<Side>> {
    let Some(item) = item else { return Ok(None) };
    let (mode, bytes) = match &item.what {
        What::Directory => return Ok(None),
        What::Symlink(target) => (GitMode::Symlink, target.clone()),
        What::File { size, content } => {
            if *size > FILE_MAX {
                return Err(Error::limit(format!(
                    "{} has {size} bytes; a patch takes files up to {FILE_MAX}",
                    crate::workspace::path::display(path)
                ))
                .code("diff")
                .hint("name other paths, or open both checkpoints"));
            }
            let mode = if item.mode & 0o100 == 0 { GitMode::File } else { GitMode::Executable };
            (mode, list::read(source, content, *size, 0..*size).await?)
        }
    };
    Ok(Some(Side { mode, id: patch::blob_id(&bytes), bytes }))
}
