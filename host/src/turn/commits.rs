//! What people get of a session's commits: a list, a series of mails, or one patch.

use bytes::Bytes;

use crate::checkpoint::inspect::OpenCheckpoint;
use crate::checkpoint::root::RootRecord;
use crate::context::Context;
use crate::error::Result;
use crate::repository::base::Base;
use crate::repository::diff::{self, DiffOptions};
use crate::repository::history::{self, CommitInfo};
use crate::repository::imported::Imported;
use crate::repository::objects::Objects;
use crate::repository::series::{self, Mail};
use crate::repository::session_git::SessionGit;
use crate::repository::status::{self, StatusOptions};
use crate::session::record::RunRecord;
use crate::workspace::source::Source;

/// What goes into a patch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PatchOptions {
    /// Only what isn't committed, as one patch on top of the last commit.
    pub uncommitted: bool,
    /// New files that `.gitignore` names too, where the patch isn't made of commits.
    pub ignored: bool,
}

/// What a session hands back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Patch {
    /// Its commits, the oldest first: a mail for each, together a mailbox that `git am` takes.
    Series {
        /// The mails.
        mails: Vec<Mail>,
        /// Number of paths at which the files differ from the last commit: they are in none of the mails.
        uncommitted: usize,
    },
    /// One patch that `git apply` takes; empty when nothing differs.
    One(Bytes),
}

async fn opened(context: &Context, source: &dyn Source, root: &RootRecord) -> Result<(Imported, Option<SessionGit>)> {
    let imported = context.imported(root).await?;
    let git = match &root.git {
        Some(git) => Some(SessionGit::open(source, git).await?),
        None => None,
    };
    Ok((imported, git))
}

/// Returns what a checkpoint changed since its pin, in the form in which it was made.
pub(crate) async fn patch(context: &Context, of: &OpenCheckpoint, options: &PatchOptions) -> Result<Patch> {
    let (source, root) = (of.source().as_ref(), &of.checkpoint().root);
    let (imported, git) = opened(context, source, root).await?;
    let wanted = StatusOptions { ignored: options.ignored, ..StatusOptions::default() };
    let Some(git) = git else {
        let options = DiffOptions { status: wanted, ..DiffOptions::default() };
        return Ok(Patch::One(diff::diff(source, &Base::pin(&imported), &root.workspace, &options).await?.into()));
    };
    let objects = Objects::new(source, [&git.root, &imported.git]);
    let base = Base::session(&git, &objects).await?;
    if options.uncommitted {
        let options = DiffOptions { status: wanted, ..DiffOptions::default() };
        return Ok(Patch::One(diff::diff(source, &base, &root.workspace, &options).await?.into()));
    }
    let uncommitted = status::status(source, &base, &root.workspace, &StatusOptions { ignored: false, ..wanted }).await?.len();
    Ok(Patch::Series { mails: series::series(source, &imported, &git).await?, uncommitted })
}

/// Returns a checkpoint's commits, the newest first, with the pin as the last; none without a repository.
pub(crate) async fn commits(context: &Context, of: &OpenCheckpoint, limit: usize) -> Result<Vec<CommitInfo>> {
    let root = &of.checkpoint().root;
    if root.pin.is_none() {
        return Ok(Vec::new());
    }
    let (imported, git) = opened(context, of.source().as_ref(), root).await?;
    history::history(of.source().as_ref(), &imported, git.as_ref(), limit).await
}

/// Returns the commits that a run made, the newest first. Reads nothing for one that made none.
pub(crate) async fn commits_of(context: &Context, record: &RunRecord) -> Result<Vec<CommitInfo>> {
    let git = |checkpoint: &Option<crate::checkpoint::root::Checkpoint>| checkpoint.as_ref().and_then(|made| made.root.git.clone());
    let (before, after) = (git(&record.before), git(&record.after));
    let (Some(root), true) = (&record.after, after.as_ref().map(|root| root.page.id) != before.as_ref().map(|root| root.page.id)) else {
        return Ok(Vec::new());
    };
    let (imported, git) = opened(context, &context.reader, &root.root).await?;
    let known = match before {
        Some(before) => Some(SessionGit::open(&context.reader, &before).await?.head),
        None => None,
    };
    let mut commits = history::history(&context.reader, &imported, git.as_ref(), series::COMMITS_MAX).await?;
    let end = commits.iter().position(|commit| commit.pinned || Some(commit.id) == known).unwrap_or(commits.len());
    commits.truncate(end);
    Ok(commits)
}
