//! The difference between a commit and a workspace as one patch, which `git apply` takes on a checkout of the commit.

use super::base::Base;
use super::patch::{self, Style};
use super::status::{Cleaners, StatusChange, StatusKind, StatusOptions, status};
use crate::error::{Error, Result};
use crate::workspace::page::Root;
use crate::workspace::source::Source;

/// What a diff looks at and how large it may be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiffOptions {
    /// Which paths, and whether renames are found.
    pub status: StatusOptions,
    /// Unchanged lines around a change.
    pub context: u32,
    /// Longest patch in bytes.
    pub max_bytes: usize,
    /// Largest file, on either side, whose content goes into the patch, in bytes: it is held in memory.
    pub max_file: u64,
}

impl Default for DiffOptions {
    fn default() -> Self {
        Self { status: StatusOptions::default(), context: patch::CONTEXT, max_bytes: 16 << 20, max_file: 64 << 20 }
    }
}

/// Returns the patch from a commit to a workspace, in git's form, sorted by path. Empty when nothing differs.
///
/// # Errors
/// `Limit` (`diff`) when the patch or a file in it is larger than allowed, `Limit` (`changes`); as [`Source::chunk`].
pub async fn diff(source: &dyn Source, base: &Base<'_>, current: &Root, options: &DiffOptions) -> Result<Vec<u8>> {
    let changes = status(source, base, current, &options.status).await?;
    patch_of(source, base, current, &changes, options).await
}

/// Returns the patch of changes that [`status`] gave for the same roots.
///
/// # Errors
/// As [`diff`].
pub async fn patch_of(
    source: &dyn Source,
    base: &Base<'_>,
    current: &Root,
    changes: &[StatusChange],
    options: &DiffOptions,
) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let style = Style { context: options.context, ..Style::default() };
    let mut cleaners = Cleaners::new(source, base, current);
    for change in changes {
        let size = [&change.before, &change.after].into_iter().flatten().map(|view| view.size).max().unwrap_or(0);
        if size > options.max_file {
            let path = String::from_utf8_lossy(&change.path).into_owned();
            return Err(
                Error::limit(format!("{path:?} has {size} bytes, and a patch takes files of up to {}", options.max_file)).code("diff")
            );
        }
        let old_path = change.from.as_ref().unwrap_or(&change.path);
        let before = match &change.before {
            Some(view) => Some(cleaners.side_before(old_path, view).await?),
            None => None,
        };
        let mut after = match &change.after {
            Some(view) => Some(cleaners.side_after(&change.path, view, before.as_ref()).await?),
            None => None,
        };
        // Another folder's attributes may store the same content differently; a rename is one of the same content.
        if change.kind == StatusKind::Renamed
            && let (Some(before), Some(after)) = (&before, &mut after)
        {
            after.id = before.id;
        }
        patch::write_file(&mut out, old_path, before.as_ref(), &change.path, after.as_ref(), style)?;
        if out.len() > options.max_bytes {
            return Err(Error::limit(format!("the diff is longer than {} bytes", options.max_bytes))
                .code("diff")
                .hint("ask for fewer paths at a time"));
        }
    }
    Ok(out)
}
