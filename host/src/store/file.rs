//! A folder as an object store, with everything that the others give: exclusive create, compare-and-swap, and writes that outlive a power cut.
//!
//! An object is the file of its key. A write goes to `.tmp/`, is flushed, then linked (create) or renamed (others) into place, and the folder is
//! flushed. Compare-and-swap holds an advisory lock on one of the files in `.locks/`, chosen by the key; they are never deleted, since
//! a lock on a deleted file excludes nobody. An object's tag is the SHA-256 of its bytes, which hold the write's nonce.

use std::collections::HashSet;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::ops::Range;
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, Extensions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UpdateVersion,
};
use rustix::fs::{FlockOperation, Mode, OFlags};

use super::document::DOCUMENT_MAX;
use crate::random::SharedRandom;

const STORE: &str = "file";
const TEMPORARY: &str = ".tmp";
const LOCKS: &str = ".locks";

/// A store in a folder.
#[derive(Clone)]
pub(crate) struct FileStore(Arc<Inner>);

struct Inner {
    root: PathBuf,
    random: SharedRandom,
    /// Folders whose own entries are known to be on the disk.
    flushed: Mutex<HashSet<PathBuf>>,
}

impl fmt::Debug for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileStore({})", self.0.root.display())
    }
}

impl fmt::Display for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file://{}", self.0.root.display())
    }
}

impl FileStore {
    /// Returns the store in the folder `root`, which need not exist yet: the first write makes it, readable by its owner alone.
    pub(crate) fn new(root: PathBuf, random: SharedRandom) -> Self {
        Self(Arc::new(Inner { root, random, flushed: Mutex::default() }))
    }

    async fn blocking<T: Send + 'static>(&self, work: impl FnOnce(&Inner) -> Result<T> + Send + 'static) -> Result<T> {
        let inner = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || work(&inner)).await?
    }
}

fn failed(path: &FilePath, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
            Error::NotFound { path: path.display().to_string(), source: error.into() }
        }
        _ => Error::Generic { store: STORE, source: error.into() },
    }
}

/// Other than [`failed`]: a folder that can't be had isn't a missing object.
fn broken(error: io::Error) -> Error {
    Error::Generic { store: STORE, source: error.into() }
}

fn unsupported(operation: &str) -> Error {
    Error::NotImplemented { operation: operation.to_owned(), implementer: STORE.to_owned() }
}

fn tag(bytes: &[u8]) -> String {
    crate::id::sha256(bytes).to_string()
}

impl Inner {
    fn path(&self, location: &Path) -> PathBuf {
        let mut path = self.root.clone();
        path.extend(location.parts().map(|part| part.as_ref().to_owned()));
        path
    }

    /// Makes a folder below the root and those above it, and flushes the entries that name them.
    fn make_folder(&self, folder: &FilePath) -> io::Result<()> {
        let known = |inner: &Self| inner.flushed.lock().unwrap_or_else(PoisonError::into_inner).contains(folder);
        if known(self) {
            return Ok(());
        }
        match (folder == self.root, folder.parent()) {
            (false, Some(above)) => {
                self.make_folder(above)?;
                make_one(folder, 0o777)?;
                flush_folder(above)?;
            }
            _ => {
                let above = folder.parent().unwrap_or(folder);
                fs::create_dir_all(above)?;
                make_one(folder, 0o700)?;
                flush_folder(above)?;
            }
        }
        let mut flushed = self.flushed.lock().unwrap_or_else(PoisonError::into_inner);
        if flushed.len() >= 10_000 {
            flushed.clear();
        }
        flushed.insert(folder.to_owned());
        Ok(())
    }

    /// Writes the bytes to a flushed file in `.tmp/`.
    fn stage(&self, payload: &PutPayload) -> io::Result<Staged> {
        let folder = self.root.join(TEMPORARY);
        self.make_folder(&folder)?;
        let path = folder.join(hex::encode(crate::random::bytes::<16>(&*self.random)));
        let mut file = File::options().write(true).create_new(true).open(&path)?;
        let staged = Staged { path };
        for part in payload {
            file.write_all(part)?;
        }
        file.sync_all()?;
        Ok(staged)
    }

    fn put(&self, location: &Path, payload: &PutPayload, mode: &PutMode) -> Result<PutResult> {
        let path = self.path(location);
        let folder = path.parent().unwrap_or(&self.root);
        let bytes: Bytes = payload.clone().into();
        match mode {
            PutMode::Overwrite => {
                let staged = self.stage(payload).map_err(broken)?;
                self.make_folder(folder).map_err(broken)?;
                fs::rename(&staged.path, &path).map_err(broken)?;
            }
            PutMode::Create => {
                let staged = self.stage(payload).map_err(broken)?;
                self.make_folder(folder).map_err(broken)?;
                fs::hard_link(&staged.path, &path).map_err(|error| match error.kind() {
                    io::ErrorKind::AlreadyExists => Error::AlreadyExists { path: location.to_string(), source: error.into() },
                    _ => broken(error),
                })?;
            }
            PutMode::Update(UpdateVersion { e_tag, .. }) => {
                let _lock = self.lock(location).map_err(broken)?;
                let refused = |why: &str| Error::Precondition { path: location.to_string(), source: why.to_owned().into() };
                let current = match read_whole(&path) {
                    Ok(bytes) => bytes,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(refused("there is no such object")),
                    Err(error) => return Err(failed(&path, error)),
                };
                if e_tag.as_ref() != Some(&tag(&current)) {
                    return Err(refused("the object isn't the expected version"));
                }
                let staged = self.stage(payload).map_err(broken)?;
                fs::rename(&staged.path, &path).map_err(broken)?;
                // Flushed under the lock, so that a version that somebody built upon is on the disk.
                flush_folder(folder).map_err(broken)?;
            }
        }
        flush_folder(folder).map_err(broken)?;
        Ok(PutResult { e_tag: Some(tag(&bytes)), version: None, extensions: Extensions::default() })
    }

    /// Holds one of the lock files until the result is dropped. The kernel lets go of a dead process's; one that is frozen in here holds the others up.
    fn lock(&self, location: &Path) -> io::Result<(File, crate::drill::Busy)> {
        let busy = crate::drill::busy();
        let folder = self.root.join(LOCKS);
        self.make_folder(&folder)?;
        let slot = crate::id::sha256(location.as_ref().as_bytes()).as_bytes()[0] & 0x3f;
        let file = File::options().write(true).create(true).truncate(false).open(folder.join(format!("{slot:02x}")))?;
        rustix::io::retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::LockExclusive))?;
        Ok((file, busy))
    }

    fn get(&self, location: &Path, options: &GetOptions) -> Result<GetResult> {
        let path = self.path(location);
        let mut file = File::open(&path).map_err(|error| failed(&path, error))?;
        let metadata = file.metadata().map_err(|error| failed(&path, error))?;
        if !metadata.is_file() {
            return Err(failed(&path, io::ErrorKind::IsADirectory.into()));
        }
        let mut meta = meta(location.clone(), &metadata)?;
        let range = match &options.range {
            Some(range) => range.as_range(metadata.len()).map_err(|error| Error::Generic { store: STORE, source: error.into() })?,
            None => 0..metadata.len(),
        };
        let mut bytes = Bytes::new();
        if !options.head {
            bytes = read_range(&mut file, &range).map_err(|error| failed(&path, error))?;
            // Only documents are ever updated, and those are read whole.
            if options.range.is_none() && bytes.len() <= DOCUMENT_MAX {
                meta.e_tag = Some(tag(&bytes));
            }
        }
        options.check_preconditions(&meta)?;
        Ok(GetResult {
            payload: GetResultPayload::Stream(futures::stream::once(std::future::ready(Ok(bytes))).boxed()),
            meta,
            range,
            attributes: Attributes::default(),
            extensions: Extensions::default(),
        })
    }

    fn delete(&self, location: &Path) -> Result<()> {
        let path = self.path(location);
        if !path.exists() {
            return Ok(());
        }
        let _lock = self.lock(location).map_err(broken)?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(broken(error)),
            _ => flush_folder(path.parent().unwrap_or(&self.root)).map_err(broken),
        }
    }

    /// Lists one folder: sub-folders and objects, in order of their names.
    fn list_folder(&self, prefix: &Path) -> Result<ListResult> {
        let folder = self.path(prefix);
        let mut found = ListResult { common_prefixes: Vec::new(), objects: Vec::new(), extensions: Extensions::default() };
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(found),
            Err(error) => return Err(broken(error)),
        };
        for entry in entries {
            let entry = entry.map_err(broken)?;
            let name = entry.file_name();
            // No key has a segment that begins with a dot; these are our own folders, or somebody's litter.
            let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else { continue };
            let location =
                super::keys::object_path(prefix.as_ref(), name).map_err(|error| Error::Generic { store: STORE, source: error.into() })?;
            match fs::metadata(entry.path()) {
                Ok(metadata) if metadata.is_dir() => found.common_prefixes.push(location),
                Ok(metadata) => found.objects.push(meta(location, &metadata)?),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(broken(error)),
            }
        }
        found.common_prefixes.sort();
        found.objects.sort_by(|a, b| a.location.cmp(&b.location));
        Ok(found)
    }

    fn list(&self, prefix: &Path, found: &mut Vec<ObjectMeta>) -> Result<()> {
        let mut folders = vec![prefix.clone()];
        while let Some(folder) = folders.pop() {
            let listed = self.list_folder(&folder)?;
            found.extend(listed.objects);
            folders.extend(listed.common_prefixes);
        }
        Ok(())
    }
}

/// A written file that is removed unless it was renamed into place.
struct Staged {
    path: PathBuf,
}

impl Drop for Staged {
    fn drop(&mut self) {
        // Gone after a rename; after a link it is the second name.
        let _ = fs::remove_file(&self.path);
    }
}

fn make_one(folder: &FilePath, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    match fs::DirBuilder::new().mode(mode).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

fn flush_folder(folder: &FilePath) -> io::Result<()> {
    let file = rustix::fs::open(folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(rustix::fs::fsync(&file)?)
}

/// Reads a document; a longer file is refused before it is read.
fn read_whole(path: &FilePath) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(DOCUMENT_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read_range(file: &mut File, range: &Range<u64>) -> io::Result<Bytes> {
    file.seek(io::SeekFrom::Start(range.start))?;
    let mut bytes = Vec::new();
    file.take(range.end - range.start).read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

fn meta(location: Path, metadata: &fs::Metadata) -> Result<ObjectMeta> {
    Ok(ObjectMeta {
        location,
        last_modified: metadata.modified().map_err(broken)?.into(),
        size: metadata.len(),
        e_tag: None,
        version: None,
    })
}

#[async_trait::async_trait]
impl ObjectStore for FileStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let location = location.clone();
        self.blocking(move |inner| inner.put(&location, &payload, &opts.mode)).await
    }

    async fn put_multipart_opts(&self, _location: &Path, _opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(unsupported("put_multipart"))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let location = location.clone();
        self.blocking(move |inner| inner.get(&location, &options)).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        locations
            .then(move |location| {
                let store = store.clone();
                async move {
                    let location = location?;
                    let deleted = location.clone();
                    store.blocking(move |inner| inner.delete(&deleted)).await.map(|()| location)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, prefix) = (self.clone(), prefix.cloned().unwrap_or_default());
        let found = async move {
            store
                .blocking(move |inner| {
                    let mut found = Vec::new();
                    inner.list(&prefix, &mut found).map(|()| found)
                })
                .await
        };
        futures::stream::once(found)
            .flat_map(|found| match found {
                Ok(found) => futures::stream::iter(found.into_iter().map(Ok).collect::<Vec<_>>()),
                Err(error) => futures::stream::iter(vec![Err(error)]),
            })
            .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let prefix = prefix.cloned().unwrap_or_default();
        self.blocking(move |inner| inner.list_folder(&prefix)).await
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> Result<()> {
        Err(unsupported("copy"))
    }
}
