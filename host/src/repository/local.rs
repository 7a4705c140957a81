//! A repository on this machine: read in place, without a git program and without its config, hooks or filters.

use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use gix::bstr::ByteSlice as _;
use gix::progress::Discard;
use gix_pack::data::output;

use super::connect::{FetchedPack, commit_not_found};
use super::remote::{RemoteOptions, Revision};
use super::url::RepositoryUrl;
use crate::error::{Error, Result};
use crate::id::CommitId;
use crate::pin::{OnBranch, Pin};

fn open(url: &RepositoryUrl, path: &Path) -> Result<gix::ThreadSafeRepository> {
    let missing = || Error::not_found(format!("there is no repository at {url}, or it can't be read")).code("repository_not_found");
    gix::ThreadSafeRepository::open_opts(path, gix::open::Options::isolated()).map_err(|_| missing())
}

/// Finds the commit that a revision is.
pub(super) fn resolve(url: &RepositoryUrl, path: &Path, revision: &Revision) -> Result<Pin> {
    let repository = open(url, path)?.to_thread_local();
    if repository.object_hash() != gix::hash::Kind::Sha1 {
        return Err(
            Error::remote(format!("the repository {url} has object ids that aren't SHA-1, which aren't supported")).code("object_format")
        );
    }
    let tip = |name: &str| -> Option<CommitId> {
        let mut reference = repository.find_reference(name).ok()?;
        let id = reference.peel_to_id().ok()?;
        Some(CommitId::from_bytes(id.as_bytes().try_into().ok()?))
    };
    let pin = |branch: Option<String>, commit, on_branch| Pin { url: url.to_string(), branch, commit, on_branch };
    match revision {
        Revision::Default => {
            let empty = || Error::not_found(format!("the repository {url} has no commit that its HEAD names")).code("branch_not_found");
            let head = repository.head().map_err(|_| empty())?;
            let branch = head.referent_name().and_then(|name| {
                let name = name.as_bstr().strip_prefix(b"refs/heads/")?;
                Some(name.to_str().ok()?.to_owned())
            });
            let commit = tip("HEAD").ok_or_else(empty)?;
            let on_branch = if branch.is_some() { OnBranch::Yes } else { OnBranch::Unchecked };
            Ok(pin(branch, commit, on_branch))
        }
        Revision::Branch(branch) => {
            let commit = tip(&branch.full_ref()).ok_or_else(|| {
                Error::not_found(format!("the repository {url} has no branch {:?}", branch.as_str())).code("branch_not_found")
            })?;
            Ok(pin(Some(branch.to_string()), commit, OnBranch::Yes))
        }
        Revision::Commit(commit, branch) => {
            let id = gix::ObjectId::from_bytes_or_panic(commit.as_bytes());
            repository.find_commit(id).map_err(|_| commit_not_found(url, *commit))?;
            Ok(pin(branch.as_ref().map(ToString::to_string), *commit, OnBranch::Unchecked))
        }
    }
}

/// Writes the pack of one commit and its tree into `directory`, as a fetch of depth 1 would.
pub(super) fn fetch_commit(
    url: &RepositoryUrl,
    path: &Path,
    commit: CommitId,
    directory: &Path,
    options: &RemoteOptions,
    interrupt: &AtomicBool,
) -> Result<FetchedPack> {
    let broken =
        |_| Error::remote(format!("the repository {url} can't give commit {commit}: an object is missing or damaged")).code("bad_pack");
    let repository = open(url, path)?.to_thread_local();
    let id = gix::ObjectId::from_bytes_or_panic(commit.as_bytes());
    let found = repository.find_commit(id).map_err(|_| commit_not_found(url, commit))?;
    let tree = found.tree_id().map_err(broken)?.detach();
    let handle = || {
        let mut handle = repository.objects.clone().into_inner();
        handle.prevent_pack_unload();
        handle
    };
    // The tree with all below it, and the commit by itself: its parents stay out.
    let (mut counts, _) = output::count::objects_unthreaded(
        &handle(),
        &mut std::iter::once(Ok(tree)),
        &Discard,
        interrupt,
        output::count::objects::ObjectExpansion::TreeContents,
    )
    .map_err(broken)?;
    let (own, _) = output::count::objects_unthreaded(
        &handle(),
        &mut std::iter::once(Ok(id)),
        &Discard,
        interrupt,
        output::count::objects::ObjectExpansion::AsIs,
    )
    .map_err(broken)?;
    counts.extend(own);
    let total = u32::try_from(counts.len())
        .ok()
        .filter(|total| *total <= options.max_objects)
        .ok_or_else(|| Error::limit(format!("commit {commit} has {} objects, over the limit of {}", counts.len(), options.max_objects)))?;
    let entries = output::entry::iter_from_counts(counts, handle(), Box::new(Discard), output::entry::iter_from_counts::Options::default())
        .map_err(broken)?;
    let entries = gix::parallel::InOrderIter::from(entries);
    let local = |error: std::io::Error| Error::local("the pack can't be written to the cache folder").source(error);
    let raw = directory.join("local.pack");
    let file = std::fs::File::create(&raw).map_err(local)?;
    let mut writer = output::bytes::FromEntriesIter::new(
        entries,
        std::io::BufWriter::with_capacity(256 << 10, file),
        total,
        gix_pack::data::Version::V2,
        gix::hash::Kind::Sha1,
    );
    for written in &mut writer {
        written.map_err(broken)?;
    }
    writer.into_write().flush().map_err(local)?;
    // Read back as a fetch reads it: verified, and indexed.
    let mut reader = std::io::BufReader::new(std::fs::File::open(&raw).map_err(local)?);
    let written = gix_pack::Bundle::write_to_directory(
        &mut reader,
        Some(directory),
        &mut Discard,
        interrupt,
        None::<gix::OdbHandle>,
        gix::hash::Kind::Sha1,
        gix_pack::bundle::write::Options { alloc_limit_bytes: Some(options.max_object_bytes), ..Default::default() },
    )
    .map_err(broken)?;
    std::fs::remove_file(&raw).map_err(local)?;
    let (Some(pack), Some(index)) = (written.data_path, written.index_path) else {
        return Err(Error::internal("a pack was written without a name"));
    };
    Ok(FetchedPack { pack, index })
}
