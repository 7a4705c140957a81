//! How a workspace differs from a commit, as git would say it: files and links, no directories; content compared by id first, and by what git
//! would store of it second.

use std::collections::HashMap;

use bytes::Bytes;

use super::base::Base;
use super::checkout::{GitMode, Oid};
use super::cleaner::Cleaner;
use super::ignore::Ignores;
use super::patch::{Side, blob_id};
use crate::error::{Error, Result};
use crate::workspace::diff::{self, EntryView, What};
use crate::workspace::list;
use crate::workspace::page::{Content, Part, Root};
use crate::workspace::page_codec::same_content;
use crate::workspace::source::Source;

/// How a path differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum StatusKind {
    /// Only the workspace has it.
    Added,
    /// Only the commit has it.
    Deleted,
    /// Both have it, with other content, another executable bit or both.
    Modified,
    /// Both have it: a file here, a link there.
    TypeChanged,
    /// The workspace has the same content under another name.
    Renamed,
}

/// A file or link of one side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileView {
    /// What it is in git.
    pub mode: GitMode,
    /// Permission bits in the workspace.
    pub permissions: u16,
    /// Time of the last modification, nanoseconds since 1970.
    pub modified: i64,
    /// Length in bytes in the workspace: of a file, or of a link's target.
    pub size: u64,
    /// A file's content, or a link's target as inline content; empty for a submodule.
    pub content: Content,
}

/// A path at which a workspace differs from a commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatusChange {
    /// The path in the workspace, or the commit's for a deleted file: raw bytes, `/` between parts.
    pub path: Bytes,
    /// The path in the commit, for a renamed file.
    pub from: Option<Bytes>,
    /// How it differs.
    pub kind: StatusKind,
    /// The file in the base.
    pub before: Option<FileView>,
    /// The file in the workspace.
    pub after: Option<FileView>,
    /// Whether the workspace's `.gitignore` files name it. Only files that the base doesn't have can be ignored.
    pub ignored: bool,
}

/// What a status looks at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatusOptions {
    /// Files and directories (raw bytes, without a slash at either end); empty means all.
    pub paths: Vec<Vec<u8>>,
    /// Whether files that went and came with the same content are given as renamed.
    pub renames: bool,
    /// Whether files that `.gitignore` names are given too.
    pub ignored: bool,
    /// Most changes that are given; more are an error.
    pub max_changes: usize,
}

impl Default for StatusOptions {
    fn default() -> Self {
        Self { paths: Vec::new(), renames: true, ignored: true, max_changes: 100_000 }
    }
}

impl StatusOptions {
    fn wants(&self, path: &[u8]) -> bool {
        self.paths.is_empty()
            || self.paths.iter().any(|wanted| {
                path.strip_prefix(wanted.as_slice()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/")) || wanted.is_empty()
            })
    }
}

/// Compares a workspace with a commit. Costs what differs, whatever the size of the tree. Sorted by path bytes.
///
/// # Errors
/// `Limit` (`changes`) above [`StatusOptions::max_changes`]; as [`Source::page`].
pub async fn status(source: &dyn Source, base: &Base<'_>, current: &Root, options: &StatusOptions) -> Result<Vec<StatusChange>> {
    let mut changes = Vec::new();
    let mut cleaners = Cleaners::new(source, base, current);
    let mut ignores = Ignores::new(source, current);
    for change in diff::diff(source, base.files, source, current).await? {
        if !options.wants(&change.path) {
            continue;
        }
        let before = match &change.before {
            None => None,
            Some(item) => view(source, base, &change.path, item, true).await?,
        };
        let after = match &change.after {
            None => None,
            Some(item) => {
                view(source, base, &change.path, item, before.as_ref().is_some_and(|before| before.mode == GitMode::Submodule)).await?
            }
        };
        let kind = match (&before, &after) {
            (None, None) => continue,
            (None, Some(_)) => StatusKind::Added,
            (Some(_), None) => StatusKind::Deleted,
            (Some(before), Some(after)) if is_link(before.mode) != is_link(after.mode) => StatusKind::TypeChanged,
            (Some(before), Some(after)) => {
                if before.mode == after.mode && (before.content == after.content || same_content(&before.content, &after.content)) {
                    continue;
                }
                StatusKind::Modified
            }
        };
        let ignored = kind == StatusKind::Added && ignores.is_ignored(&change.path, false).await?;
        if ignored && !options.ignored {
            continue;
        }
        let change = StatusChange { path: change.path.clone(), from: None, kind, before, after, ignored };
        if kind == StatusKind::Modified && cleaners.is_same_blob(&change).await? {
            continue;
        }
        if changes.len() >= options.max_changes {
            return Err(Error::limit(format!("more than {} paths differ", options.max_changes)).code("changes"));
        }
        changes.push(change);
    }
    if options.renames {
        changes = pair_renames(&changes);
    }
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(changes)
}

fn is_link(mode: GitMode) -> bool {
    mode == GitMode::Symlink
}

/// Returns a file or link as git sees it; none for a directory, apart from one that stands for a submodule.
async fn view(source: &dyn Source, base: &Base<'_>, path: &[u8], item: &EntryView, may_be_submodule: bool) -> Result<Option<FileView>> {
    let (permissions, modified) = (item.mode, item.mtime);
    Ok(match &item.what {
        What::File { size, content } => {
            let mode = if item.mode & 0o100 == 0 { GitMode::File } else { GitMode::Executable };
            Some(FileView { mode, permissions, modified, size: *size, content: content.clone() })
        }
        What::Symlink(target) => {
            let (size, content) = (target.len() as u64, Content::Inline(target.clone()));
            Some(FileView { mode: GitMode::Symlink, permissions, modified, size, content })
        }
        What::Directory => match may_be_submodule {
            true if matches!(base.blob_of(source, path).await?, Some((GitMode::Submodule, _))) => {
                Some(FileView { mode: GitMode::Submodule, permissions, modified, size: 0, content: Content::Inline(Bytes::new()) })
            }
            _ => None,
        },
    })
}

/// Pairs each added file with a deleted one of the same content, in the order of their paths.
fn pair_renames(changes: &[StatusChange]) -> Vec<StatusChange> {
    let key = |view: &FileView| -> Option<(bool, u64, Vec<u8>)> {
        if view.size == 0 || view.mode == GitMode::Submodule {
            return None;
        }
        let mut ids = Vec::new();
        match &view.content {
            Content::Inline(bytes) => ids.extend_from_slice(bytes),
            Content::List(link) => ids.extend_from_slice(link.id.as_bytes()),
            Content::Parts(parts) => {
                for part in parts {
                    match part {
                        Part::Chunk(link, _) => ids.extend_from_slice(link.id.as_bytes()),
                        Part::Hole(len) => ids.extend_from_slice(&len.to_be_bytes()),
                    }
                }
            }
        }
        Some((is_link(view.mode), view.size, ids))
    };
    let mut gone: HashMap<_, std::collections::VecDeque<usize>> = HashMap::new();
    for (at, change) in changes.iter().enumerate() {
        if change.kind == StatusKind::Deleted
            && let Some(key) = change.before.as_ref().and_then(key)
        {
            gone.entry(key).or_default().push_back(at);
        }
    }
    let mut taken = vec![false; changes.len()];
    let mut pairs = HashMap::new();
    for (at, change) in changes.iter().enumerate() {
        if change.kind == StatusKind::Added
            && !change.ignored
            && let Some(from) = change.after.as_ref().and_then(key).and_then(|key| gone.get_mut(&key)?.pop_front())
        {
            taken[from] = true;
            pairs.insert(at, from);
        }
    }
    let mut paired = Vec::with_capacity(changes.len());
    for (at, change) in changes.iter().enumerate() {
        match pairs.get(&at).and_then(|from| changes.get(*from)) {
            Some(from) => paired.push(StatusChange {
                path: change.path.clone(),
                from: Some(from.path.clone()),
                kind: StatusKind::Renamed,
                before: from.before.clone(),
                after: change.after.clone(),
                ignored: false,
            }),
            None if taken[at] => {}
            None => paired.push(change.clone()),
        }
    }
    paired
}

/// The two roots' attributes.
pub(super) struct Cleaners<'a> {
    source: &'a dyn Source,
    base: &'a Base<'a>,
    before: Cleaner<'a>,
    after: Cleaner<'a>,
}

impl<'a> Cleaners<'a> {
    pub(super) fn new(source: &'a dyn Source, base: &'a Base<'a>, current: &'a Root) -> Self {
        Self { source, base, before: Cleaner::new(source, base.files), after: Cleaner::new(source, current) }
    }

    /// Whether any attribute file of the workspace is on the way to a path.
    pub(super) async fn has_any(&mut self, path: &[u8]) -> Result<bool> {
        self.after.has_any(path).await
    }

    /// Whether git would store the same bytes for both sides, as after a change of nothing but line ends.
    async fn is_same_blob(&mut self, change: &StatusChange) -> Result<bool> {
        let (Some(before), Some(after)) = (&change.before, &change.after) else { return Ok(false) };
        // Without attributes other content is another blob, and no byte need be read.
        if before.mode != after.mode || is_link(after.mode) || !self.base.attributes && !self.after.has_any(&change.path).await? {
            return Ok(false);
        }
        let Some((_, id)) = self.base.blob_of(self.source, &change.path).await? else { return Ok(false) };
        let before = self.side_before(&change.path, before).await?;
        Ok(self.side_after(&change.path, after, Some(&before)).await?.id == id)
    }

    /// Returns the base's side of a change, as git stores it.
    pub(super) async fn side_before(&mut self, path: &[u8], view: &FileView) -> Result<Side> {
        if view.mode == GitMode::Submodule {
            let id = self.base.blob_of(self.source, path).await?.map_or([0; 20], |(_, id)| id);
            return Ok(Side { mode: view.mode, id, bytes: Bytes::new() });
        }
        let content = self.read(view).await?;
        let bytes = if is_link(view.mode) || !self.base.attributes {
            content
        } else {
            self.before.clean(path, content.clone(), Some(&content)).await?
        };
        let id = blob_id(&bytes);
        Ok(Side { mode: view.mode, id, bytes })
    }

    /// Returns the workspace's side of a change, as git would store it.
    pub(super) async fn side_after(&mut self, path: &[u8], view: &FileView, before: Option<&Side>) -> Result<Side> {
        if view.mode == GitMode::Submodule {
            return Ok(Side { mode: view.mode, id: Oid::default(), bytes: Bytes::new() });
        }
        let content = self.read(view).await?;
        let bytes = if is_link(view.mode) { content } else { self.after.clean(path, content, before.map(|side| &side.bytes)).await? };
        let id = blob_id(&bytes);
        Ok(Side { mode: view.mode, id, bytes })
    }

    async fn read(&self, view: &FileView) -> Result<Bytes> {
        list::read(self.source, &view.content, view.size, 0..view.size).await
    }
}
