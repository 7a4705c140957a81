//! A real `.git` beside a materialised workspace: HEAD at the session's last commit or at the pin, the pack as fetched, the session's own
//! objects, and an index by which `git status` shows what isn't committed and nothing else.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use gix::bstr::ByteSlice as _;

use super::history;
use super::imported::Imported;
use super::objects::{ObjectKind, Objects};
use super::session_git::SessionGit;
use crate::error::{Error, Result};
use crate::id::CommitId;
use crate::pin::{OnBranch, Pin};
use crate::workspace::list;
use crate::workspace::page::{Content, Node, PageLink};
use crate::workspace::source::Source;
use crate::workspace::tree;

/// Bytes of a pack that are read at a time.
const PIECE: u64 = 4 << 20;
/// Most directories inside each other in what is written to a git directory.
const DEPTH_MAX: usize = 8;

/// Writes `<folder>/.git` for a workspace that was materialised into `folder`.
///
/// `changed` holds the paths (raw bytes, `/` between parts) of every file and link at which the folder differs from the session's last
/// commit, or from the pin when there is none; git looks at these again, and takes the others for unchanged without reading them. The
/// directory appears whole or not at all.
///
/// # Errors
/// `Local` when the folder can't be written or has a `.git` already; as [`Source::chunk`].
pub async fn write_git_dir(
    source: &dyn Source,
    imported: &Imported,
    git: Option<&SessionGit>,
    pin: &Pin,
    folder: &Path,
    changed: HashSet<Vec<u8>>,
) -> Result<()> {
    let target = folder.join(".git");
    if target.symlink_metadata().is_ok() {
        return Err(Error::local(format!("{} is there already", target.display())));
    }
    // Beside the folder, so that no name of the workspace can be in the way.
    let parent = folder.parent().unwrap_or_else(|| Path::new("."));
    let scratch = tempfile::Builder::new()
        .prefix(".landfall-git-")
        .tempdir_in(parent)
        .map_err(|error| Error::local(format!("{} can't be written", parent.display())).source(error))?;
    let git_dir = scratch.path().join("git");
    make_directory(&git_dir)?;
    for name in ["branches", "hooks", "info", "objects/info", "refs/heads", "refs/tags"] {
        make_directory(&git_dir.join(name))?;
    }
    write_files(source, &imported.git.page, &git_dir).await?;
    let mut tree = imported.tree_id()?;
    if let Some(git) = git {
        write_objects(source, git, &git_dir).await?;
        tree = history::tree_of(&Objects::new(source, [&git.root, &imported.git]), imported, git.head).await?;
    }
    write_refs(&git_dir, pin, git.map_or(pin.commit, |git| git.head))?;
    write_file(&git_dir.join("config"), config(pin).as_bytes())?;
    write_file(&git_dir.join("description"), b"Unnamed repository; edit this file 'description' to name the repository.\n")?;
    let root = folder.to_path_buf();
    let at = git_dir.clone();
    tokio::task::spawn_blocking(move || write_index(&at, &root, &tree, &changed))
        .await
        .map_err(|error| Error::internal("the export's thread failed").source(error))??;
    std::fs::rename(&git_dir, &target).map_err(|error| Error::local(format!("{} can't be made", target.display())).source(error))
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::local(format!("{} can't be written", path.display())).source(error)
}

fn make_directory(path: &Path) -> Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed(path))
}

fn create(path: &Path) -> Result<std::fs::File> {
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed(path))
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    create(path)?.write_all(bytes).map_err(failed(path))
}

/// Writes the session's objects as git keeps them one by one: deflated, each in a file by its id.
async fn write_objects(source: &dyn Source, git: &SessionGit, git_dir: &Path) -> Result<()> {
    for kind in ObjectKind::ALL {
        for entry in git.objects(source, kind).await? {
            let damaged = || Error::damaged("an object of the session has a name that is no id").code("git_damaged");
            let id = std::str::from_utf8(&entry.name).ok().filter(|id| id.len() == 40 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
            let (Some((folder, file)), Node::File { size, content }) = (id.map(|id| id.split_at(2)), entry.node) else {
                return Err(damaged());
            };
            let folder = git_dir.join("objects").join(folder);
            make_directory(&folder)?;
            let path = folder.join(file);
            let mut out = gix::zlib::stream::deflate::Write::new(create(&path)?, gix::zlib::Compression::DEFAULT);
            out.write_all(format!("{} {size}\0", kind.name()).as_bytes()).map_err(failed(&path))?;
            let mut at = 0;
            while at < size {
                let end = at.saturating_add(PIECE).min(size);
                out.write_all(&list::read(source, &content, size, at..end).await?).map_err(failed(&path))?;
                at = end;
            }
            out.flush().map_err(failed(&path))?;
        }
    }
    Ok(())
}

/// Writes the files of a root of git's, of which only plain names, files and directories are taken. Commits and trees by themselves are in the
/// pack as well.
async fn write_files(source: &dyn Source, page: &PageLink, into: &Path) -> Result<()> {
    let mut waiting: Vec<(PageLink, PathBuf, usize)> = vec![(page.clone(), into.to_path_buf(), 0)];
    while let Some((page, folder, depth)) = waiting.pop() {
        if depth > DEPTH_MAX {
            return Err(Error::damaged("an import's git files are too deep").code("import_damaged"));
        }
        for entry in tree::list(source, &page).await? {
            let name = std::str::from_utf8(&entry.name)
                .ok()
                .filter(|name| {
                    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')) && !name.starts_with('.')
                })
                .ok_or_else(|| Error::damaged("an import's git files have a name that git doesn't give").code("import_damaged"))?;
            if depth == 0 && ObjectKind::ALL.iter().any(|kind| kind.folder() == name) {
                continue;
            }
            let path = folder.join(name);
            match entry.node {
                Node::Directory(page) => {
                    make_directory(&path)?;
                    waiting.push((page, path, depth + 1));
                }
                Node::File { size, content } => write_content(source, &content, size, &path).await?,
                Node::Symlink(_) | Node::Linked(_) => {
                    return Err(Error::damaged("an import's git files hold a link").code("import_damaged"));
                }
            }
        }
    }
    Ok(())
}

async fn write_content(source: &dyn Source, content: &Content, size: u64, path: &Path) -> Result<()> {
    let mut file = create(path)?;
    let mut at = 0;
    while at < size {
        let end = at.saturating_add(PIECE).min(size);
        let bytes = list::read(source, content, size, at..end).await?;
        file.write_all(&bytes).map_err(failed(path))?;
        at = end;
    }
    Ok(())
}

/// HEAD is the pin's branch where the pin is known to be of it, and else the commit itself; the remote's branch is at the pin.
fn write_refs(git_dir: &Path, pin: &Pin, head: CommitId) -> Result<()> {
    let commit = format!("{head}\n");
    let branch = pin.branch.as_deref().filter(|name| pin.on_branch == OnBranch::Yes && super::check_branch(name).is_ok());
    let Some(branch) = branch else { return write_file(&git_dir.join("HEAD"), commit.as_bytes()) };
    write_file(&git_dir.join("HEAD"), format!("ref: refs/heads/{branch}\n").as_bytes())?;
    for (folder, commit) in [("refs/heads", commit), ("refs/remotes/origin", format!("{}\n", pin.commit))] {
        let path = git_dir.join(folder).join(branch);
        make_directory(path.parent().unwrap_or(git_dir))?;
        write_file(&path, commit.as_bytes())?;
    }
    Ok(())
}

/// The one config of the folder: nothing of it comes from a guest, and no secret is in it.
fn config(pin: &Pin) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let mut text = String::from(
        "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n\tsymlinks = true\n\tignorecase = false\n",
    );
    text.push_str(&format!("[remote \"origin\"]\n\turl = {}\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n", quoted(&pin.url)));
    if let Some(branch) = pin.branch.as_deref().filter(|name| super::check_branch(name).is_ok()) {
        text.push_str(&format!("[branch {}]\n\tremote = origin\n\tmerge = {}\n", quoted(branch), quoted(&format!("refs/heads/{branch}"))));
    }
    text
}

/// Writes the index of the pin's tree. Files that aren't changed get what the disk says of them, so git needn't read them.
fn write_index(git_dir: &Path, folder: &Path, tree: &[u8; 20], changed: &HashSet<Vec<u8>>) -> Result<()> {
    let broken = |what: &str| Error::damaged(format!("the imported pack can't be used: {what}")).code("import_damaged");
    let repository = gix::open_opts(git_dir, gix::open::Options::isolated().open_path_as_is(true)).map_err(|_| broken("no repository"))?;
    let mut index =
        repository.index_from_tree(&gix::ObjectId::from_bytes_or_panic(tree)).map_err(|_| broken("the commit's tree isn't in it"))?;
    for (entry, path) in index.entries_mut_with_paths() {
        if changed.contains(path.as_bytes()) || entry.mode == gix::index::entry::Mode::COMMIT {
            continue;
        }
        let Ok(meta) = folder.join(OsStr::from_bytes(path)).symlink_metadata() else { continue };
        if meta.is_dir() {
            continue;
        }
        entry.stat = stat(&meta);
    }
    let path = git_dir.join("index");
    let mut file = std::io::BufWriter::with_capacity(256 << 10, create(&path)?);
    index.write_to(&mut file, gix::index::write::Options::default()).map_err(|_| broken("its index can't be made"))?;
    file.flush().map_err(failed(&path))
}

/// As git stores it: every number cut to 32 bits.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "git's index keeps the low 32 bits")]
fn stat(meta: &std::fs::Metadata) -> gix::index::entry::Stat {
    let time = |seconds: i64, nanos: i64| gix::index::entry::stat::Time { secs: seconds as u32, nsecs: nanos as u32 };
    gix::index::entry::Stat {
        mtime: time(meta.mtime(), meta.mtime_nsec()),
        ctime: time(meta.ctime(), meta.ctime_nsec()),
        dev: meta.dev() as u32,
        ino: meta.ino() as u32,
        uid: meta.uid(),
        gid: meta.gid(),
        size: meta.size() as u32,
    }
}
