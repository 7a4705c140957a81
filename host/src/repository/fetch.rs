//! Fetching one commit into a temporary bare git directory.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::branch::BranchName;
use super::connect::{FetchedPack, What, commit_not_found};
use super::local;
use super::remote::{Access, Git, ProgressSink};
use crate::error::{Error, Result};
use crate::id::CommitId;

/// A commit with its tree in a temporary git directory. The directory goes away with the value.
pub(super) struct Fetched {
    directory: tempfile::TempDir,
    pub(super) pack: FetchedPack,
    /// The commits whose parents aren't there, as git's `shallow` file lists them.
    pub(super) shallow: String,
}

impl Fetched {
    /// The bare git directory.
    pub(super) fn git_dir(&self) -> &Path {
        self.directory.path()
    }
}

/// Fetches the commit that an access was given for. Blocking.
pub(super) fn fetch(
    git: &Git,
    access: &Access,
    directory: tempfile::TempDir,
    progress: Option<&ProgressSink>,
    interrupt: &Arc<AtomicBool>,
) -> Result<Fetched> {
    let commit = access.pin().commit;
    let local_error = |error: std::io::Error| Error::local("the cache folder can't be written").source(error);
    let packs = prepare(directory.path())?;
    let shallow_file = directory.path().join("shallow");
    let pack = match access.url.file_path() {
        Some(path) => {
            let pack = local::fetch_commit(&access.url, &path, commit, &packs, git.options(), interrupt)?;
            if has_parents(directory.path(), commit)? {
                std::fs::write(&shallow_file, format!("{commit}\n")).map_err(local_error)?;
            }
            pack
        }
        None => remote(git, access, directory.path(), &packs, progress, interrupt)?,
    };
    let shallow = match std::fs::read_to_string(&shallow_file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(local_error(error)),
    };
    Ok(Fetched { directory, pack, shallow })
}

/// Makes an empty bare repository and returns its folder of packs.
pub(super) fn prepare(git_dir: &Path) -> Result<PathBuf> {
    let failed = |error: std::io::Error| Error::local("the temporary git directory can't be made").source(error);
    // By hand: an init would copy templates and ask the file system questions.
    let packs = git_dir.join("objects").join("pack");
    std::fs::create_dir_all(&packs).map_err(failed)?;
    std::fs::create_dir_all(git_dir.join("refs").join("heads")).map_err(failed)?;
    std::fs::write(git_dir.join("HEAD"), "ref: refs/heads/none\n").map_err(failed)?;
    std::fs::write(git_dir.join("config"), "[core]\n\trepositoryformatversion = 0\n\tbare = true\n\tignorecase = false\n")
        .map_err(failed)?;
    Ok(packs)
}

fn has_parents(git_dir: &Path, commit: CommitId) -> Result<bool> {
    let bad = || Error::remote(format!("commit {commit} is damaged or isn't a commit")).code("bad_objects");
    let repository =
        gix::open_opts(git_dir, gix::open::Options::isolated()).map_err(|_| Error::local("the temporary git directory can't be opened"))?;
    let found = repository.find_commit(gix::ObjectId::from_bytes_or_panic(commit.as_bytes())).map_err(|_| bad())?;
    Ok(found.parent_ids().next().is_some())
}

fn remote(
    git: &Git,
    access: &Access,
    git_dir: &Path,
    packs: &Path,
    progress: Option<&ProgressSink>,
    interrupt: &Arc<AtomicBool>,
) -> Result<FetchedPack> {
    let (url, pin, options) = (&access.url, access.pin(), git.options());
    let connect = || git.connect(url, access.credential.as_ref(), Arc::clone(interrupt));
    let refused = match connect()?.fetch_commit(pin.commit, NonZeroU32::MIN, What::All, git_dir, packs, options, progress) {
        Err(error) if error.stable_code() == "commit_not_found" => error,
        done => return done,
    };
    // An old server gives out only what a ref names: take the branch with some of its history and look for the commit there.
    let Some(branch) = pin.branch.as_deref().and_then(|name| BranchName::parse(name).ok()) else { return Err(refused) };
    let Some(depth) = NonZeroU32::new(options.history_depth) else { return Err(refused) };
    let mut connection = connect()?;
    let tip = match connection.branch(&branch) {
        Ok(tip) => tip,
        Err(error) if error.stable_code() == "branch_not_found" => return Err(refused),
        Err(error) => return Err(error),
    };
    let _ = std::fs::remove_file(git_dir.join("shallow"));
    let depth = if tip == pin.commit { NonZeroU32::MIN } else { depth };
    let pack = connection.fetch_commit(tip, depth, What::All, git_dir, packs, options, progress)?;
    has_parents(git_dir, pin.commit).map_err(|_| commit_not_found(url, pin.commit))?;
    Ok(pack)
}
