//! From a file to a component that is ready to run: by digest, compiled once, kept in memory and in the folder of artefacts.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use lru::LruCache;
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;
use wasmtime::component::Component;
use wasmtime_wasi::p2::bindings::CommandPre;

use super::artefact::{Artefact, ArtefactCache, CacheOptions};
use super::engine::Engine;
use super::imports::{self, AGENT_VERSION, Import};
use super::state::TurnState;
use crate::capability::bindings::AgentPre;
use crate::clock::SharedClock;
use crate::error::{Error, Result};
use crate::id::{self, Digest};
use crate::policy::grants::Grants;
use crate::random::SharedRandom;

/// Largest component file, in bytes.
pub const COMPONENT_MAX: u64 = 512 << 20;
/// Components that stay in memory.
const IN_MEMORY: NonZeroUsize = NonZeroUsize::new(64).expect("not zero");
/// A file whose times are younger than this may change again without new times, in nanoseconds; so it is read again.
const RACY: i64 = 2_000_000_000;

/// What a component is to the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum World {
    /// `landfall:agent/agent`: exports `turn`.
    Agent,
    /// `wasi:cli/command`: exports `wasi:cli/run`.
    Command,
}

/// A component that is ready to run.
pub struct Loaded {
    name: String,
    program: String,
    digest: Digest,
    imports: Vec<Import>,
    entry: Entry,
}

/// The pre-instantiated component: its imports are resolved and its exports looked up.
pub(super) enum Entry {
    Agent(AgentPre<TurnState>),
    Command(CommandPre<TurnState>),
}

impl Loaded {
    /// Returns the SHA-256 of the component's file.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the name it was loaded by: its path.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what it is to the host.
    #[must_use]
    pub fn world(&self) -> World {
        match self.entry {
            Entry::Agent(_) => World::Agent,
            Entry::Command(_) => World::Command,
        }
    }

    /// Returns what it imports, sorted by name.
    #[must_use]
    pub fn imports(&self) -> &[Import] {
        &self.imports
    }

    /// Checks its imports against what an agent is granted.
    ///
    /// # Errors
    /// `Denied`, naming each import that isn't granted.
    pub fn check_granted(&self, grants: &Grants) -> Result<()> {
        imports::check_granted(&self.name, &self.imports, grants)
    }

    pub(super) fn program(&self) -> &str {
        &self.program
    }

    pub(super) fn entry(&self) -> &Entry {
        &self.entry
    }
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded")
            .field("name", &self.name)
            .field("digest", &self.digest)
            .field("world", &self.world())
            .finish_non_exhaustive()
    }
}

/// The components of an engine.
pub(super) struct Components {
    artefacts: Option<ArtefactCache>,
    /// Identifies what the engine compiles to: the compiler, its settings, the processor.
    compatibility: Digest,
    loaded: Mutex<LruCache<Digest, Arc<OnceCell<Arc<Loaded>>>>>,
    files: Mutex<HashMap<PathBuf, (Stamp, Digest)>>,
    clock: SharedClock,
}

/// What tells one state of a file from another without reading it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(file: &std::fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self {
            device: file.dev(),
            inode: file.ino(),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }

    fn youngest(&self) -> i64 {
        let nanos = |(seconds, nanos): (i64, i64)| seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
        nanos(self.modified).max(nanos(self.changed))
    }
}

impl Components {
    pub(super) fn open(engine: &wasmtime::Engine, cache: Option<&CacheOptions>, clock: SharedClock, random: SharedRandom) -> Result<Self> {
        let artefacts = cache.map(|options| ArtefactCache::open(options, random)).transpose()?;
        let mut hasher = Sha256Hasher(Sha256::new());
        engine.precompile_compatibility_hash().hash(&mut hasher);
        let compatibility = Digest::from_bytes(hasher.0.finalize().into());
        Ok(Self { artefacts, compatibility, loaded: Mutex::new(LruCache::new(IN_MEMORY)), files: Mutex::default(), clock })
    }

    /// Returns the component of a file that was read before and hasn't changed since.
    fn known(&self, path: &Path, stamp: &Stamp) -> Option<Arc<Loaded>> {
        let digest = {
            let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
            files.get(path).filter(|(known, _)| known == stamp).map(|(_, digest)| *digest)?
        };
        self.slot(digest).get().map(Arc::clone)
    }

    fn remember(&self, path: &Path, stamp: Stamp, digest: Digest) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if self.clock.now().saturating_sub(stamp.youngest()) < RACY {
            files.remove(path);
        } else {
            files.insert(path.to_owned(), (stamp, digest));
        }
    }

    fn slot(&self, digest: Digest) -> Arc<OnceCell<Arc<Loaded>>> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(loaded.get_or_insert(digest, Arc::default))
    }

    fn artefact_name(&self, digest: Digest) -> Digest {
        id::sha256(&[self.compatibility.as_bytes().as_slice(), digest.as_bytes()].concat())
    }
}

struct Sha256Hasher(Sha256);

impl Hasher for Sha256Hasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        // Nobody asks for it: the whole digest is taken instead.
        0
    }
}

impl Engine {
    /// Loads a component from a file. A file that was loaded before and hasn't changed costs one `stat`.
    ///
    /// # Errors
    /// `NotFound` when there is no such file, `Component` when it isn't a component, exports nothing that the host runs, or imports
    /// what the host doesn't have.
    pub async fn load(&self, path: impl AsRef<Path>) -> Result<Arc<Loaded>> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let metadata = std::fs::metadata(path).map_err(|error| unreadable(&name, error))?;
        if let Some(loaded) = self.components().known(path, &Stamp::of(&metadata)) {
            return Ok(loaded);
        }
        let (bytes, stamp) = {
            let (path, name) = (path.to_owned(), name.clone());
            blocking(move || read(&path, &name)).await?
        };
        let loaded = self.load_bytes(&name, bytes).await?;
        self.components().remember(path, stamp, loaded.digest());
        Ok(loaded)
    }

    /// Loads a component from memory. `name` stands for it in errors.
    ///
    /// # Errors
    /// As [`Engine::load`].
    pub async fn load_bytes(&self, name: &str, bytes: Bytes) -> Result<Arc<Loaded>> {
        let digest = {
            let bytes = bytes.clone();
            blocking(move || Ok(id::sha256(&bytes))).await?
        };
        let slot = self.components().slot(digest);
        let load = || {
            let (engine, name) = (self.clone(), name.to_owned());
            blocking(move || engine.prepare(&name, digest, &bytes).map(Arc::new))
        };
        slot.get_or_try_init(load).await.map(Arc::clone)
    }

    fn prepare(&self, name: &str, digest: Digest, bytes: &[u8]) -> Result<Loaded> {
        check_form(name, bytes)?;
        let component = self.compiled(name, digest, bytes)?;
        let ty = component.component_type();
        let mut imports: Vec<_> = ty.imports(self.wasmtime()).map(|(import, _)| Import { name: import.to_owned() }).collect();
        imports.sort();
        let exports: Vec<_> = ty.exports(self.wasmtime()).map(|(export, _)| export.to_owned()).collect();
        let world = world(name, &exports)?;
        imports::check_linked(name, &imports)?;
        let mismatch = |error| imports::explain_mismatch(name, &imports, error);
        let pre = self.linker().instantiate_pre(&component).map_err(mismatch)?;
        let entry = match world {
            World::Agent => Entry::Agent(AgentPre::new(pre).map_err(mismatch)?),
            World::Command => Entry::Command(CommandPre::new(pre).map_err(mismatch)?),
        };
        let program = Path::new(name).file_stem().map_or_else(|| name.to_owned(), |stem| stem.to_string_lossy().into_owned());
        Ok(Loaded { name: name.to_owned(), program, digest, imports, entry })
    }

    /// Takes the compiled form from the folder of artefacts, or compiles and keeps it.
    fn compiled(&self, name: &str, digest: Digest, bytes: &[u8]) -> Result<Component> {
        let components = self.components();
        let artefact_name = components.artefact_name(digest);
        let cached = components.artefacts.as_ref().and_then(|artefacts| artefacts.get(&artefact_name));
        if let Some(artefact) = cached {
            match deserialize(self.wasmtime(), &artefact) {
                Ok(component) => return Ok(component),
                Err(error) => {
                    tracing::warn!(component = name, error = %format!("{error:#}"), "a compiled component doesn't fit; it is compiled again");
                }
            }
        }
        let component = Component::from_binary(self.wasmtime(), bytes).map_err(|error| not_a_component(name, error))?;
        if let Some(artefacts) = &components.artefacts {
            match component.serialize() {
                Ok(code) => artefacts.put(&artefact_name, &code),
                Err(error) => tracing::warn!(component = name, error = %format!("{error:#}"), "a compiled component can't be kept"),
            }
        }
        Ok(component)
    }
}

#[expect(unsafe_code, reason = "the only way to load compiled code; see the SAFETY comment")]
fn deserialize(engine: &wasmtime::Engine, artefact: &Artefact) -> wasmtime::Result<Component> {
    // SAFETY: the bytes must be what `Component::serialize` gave, unmodified while they are mapped. The artefact's MAC was checked under
    // a key that only this user can read, over this very open file; the key's owner makes MACs only of `serialize`'s output. File and
    // folder can be written by this user alone, who could as well change this process, and artefacts are replaced by rename, never in place.
    unsafe { Component::deserialize_file(engine, artefact.path()) }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(failed) => Err(Error::internal("loading a component stopped unexpectedly").source(failed)),
    }
}

fn read(path: &Path, name: &str) -> Result<(Bytes, Stamp)> {
    use std::io::Read;
    let file = std::fs::File::open(path).map_err(|error| unreadable(name, error))?;
    let metadata = file.metadata().map_err(|error| unreadable(name, error))?;
    if !metadata.is_file() {
        return Err(Error::component(format!("{name} is not a file")).hint("name the component's .wasm file"));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len().min(COMPONENT_MAX)).unwrap_or(0));
    file.take(COMPONENT_MAX + 1).read_to_end(&mut bytes).map_err(|error| unreadable(name, error))?;
    if bytes.len() as u64 > COMPONENT_MAX {
        return Err(Error::limit(format!("{name} is larger than {COMPONENT_MAX} bytes, the most a component may have")));
    }
    // Of the opened file and before it was read: a change meanwhile gives the path another stamp.
    Ok((bytes.into(), Stamp::of(&metadata)))
}

fn unreadable(name: &str, error: std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::NotFound {
        return Error::not_found(format!("there is no component file {name}"))
            .code("component_missing")
            .hint("build the component, or correct its path");
    }
    Error::local(format!("cannot read the component file {name}")).source(error)
}

/// Refuses what can be told from the first bytes.
fn check_form(name: &str, bytes: &[u8]) -> Result<()> {
    const BUILD: &str = "build it as a component: in Rust with `--target wasm32-wasip2`, or turn a core module into one with \
                         `wasm-tools component new MODULE.wasm --adapt wasi_snapshot_preview1.command.wasm -o COMPONENT.wasm`";
    let wrong = |what: &str| Error::component(format!("{name} {what}")).code("not_a_component").hint(BUILD);
    match bytes {
        [] => Err(wrong("is empty")),
        [0, b'a', b's', b'm', 0x0d, 0, 1, 0, ..] => Ok(()),
        [0, b'a', b's', b'm', 1, 0, 0, 0, ..] => Err(wrong("is a core WebAssembly module, not a component")),
        [0, b'a', b's', b'm', _, _, layer, ..] => Err(wrong(if *layer == 1 {
            "is a component of another version of the binary format"
        } else {
            "is WebAssembly of an unknown version"
        })),
        [0x7f, b'E', b'L', b'F', ..] => Err(wrong("is native code, not WebAssembly; compiled components are never taken from outside")),
        _ if bytes.trim_ascii_start().starts_with(b"(") => Err(wrong("is WebAssembly text, not a binary component")),
        _ => Err(wrong("is not WebAssembly")),
    }
}

fn not_a_component(name: &str, error: wasmtime::Error) -> Error {
    Error::component(format!("{name} is not a valid component, or uses WebAssembly features that guests don't get"))
        .code("invalid_component")
        .hint("build it again; 64-bit memories, threads, garbage collection and exceptions are not available to guests")
        .source(error.into_boxed_dyn_error())
}

/// Finds out what a component is by its exports.
fn world(name: &str, exports: &[String]) -> Result<World> {
    let of = |interface: &str| exports.iter().find_map(|export| export.strip_prefix(interface)?.strip_prefix('@'));
    if let Some(version) = of("landfall:agent/turn") {
        if imports::compatible(version, AGENT_VERSION) {
            return Ok(World::Agent);
        }
        return Err(Error::component(format!("{name} exports landfall:agent/turn@{version}, and this host runs {AGENT_VERSION}"))
            .code("version_skew")
            .hint(format!("build the component against landfall:agent@{AGENT_VERSION}, or use a host of its version")));
    }
    match of("wasi:cli/run") {
        Some(version) if imports::compatible(version, imports::WASI_VERSION) => Ok(World::Command),
        Some(version) => Err(Error::component(format!("{name} exports wasi:cli/run@{version}, and this host runs WASI 0.2"))
            .code("version_skew")
            .hint("build the component for WASI 0.2 (`--target wasm32-wasip2`)")),
        None => {
            let has = if exports.is_empty() { "nothing".to_owned() } else { exports.join(", ") };
            Err(Error::component(format!("{name} is of a world that this host doesn't run: it exports {has}"))
                .code("unknown_world")
                .hint(format!("an agent exports landfall:agent/turn@{AGENT_VERSION}, a command exports wasi:cli/run@0.2")))
        }
    }
}

#[cfg(test)]
mod tests;
