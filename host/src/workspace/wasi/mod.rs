//! `wasi:filesystem` 0.2 over a [`Workspace`]: what a guest's files are made of. No host path is behind it.
//!
//! Put a [`FilesystemCtx`] into the store's data, implement [`FilesystemHost`] for it and call [`add_to_linker`]; the other WASI
//! interfaces come from wasmtime-wasi. What is in memory is answered in the call itself; what has to be fetched is awaited there, or
//! in a stream's `ready`, so that an event loop in the guest goes on meanwhile.
//!
//! A guest's mistakes are error codes. Failures of the host (the store can't be reached, a page is damaged) end the call as a trap
//! that holds the [`crate::Error`]: `error.downcast_ref::<landfall::Error>()`.

use std::sync::Arc;

use wasmtime::component::{HasData, Linker, ResourceTable};

use self::seats::Seats;
use super::{Filesystem, Workspace};

pub mod descriptor;
pub mod errors;
mod preopens;
mod seats;
pub mod streams;
mod types;

/// The host's side of the interface, generated from its WIT (`wasi:filesystem` 0.2.12; the linker gives it to guests of any 0.2).
#[expect(missing_docs, reason = "generated code")]
pub mod bindings {
    wasmtime::component::bindgen!({
        inline: "
            package landfall:host-filesystem;
            world host {
                import wasi:filesystem/types@0.2.12;
                import wasi:filesystem/preopens@0.2.12;
            }
        ",
        path: "../wit",
        world: "landfall:host-filesystem/host",
        imports: {
            // Only these may have to fetch something.
            "wasi:filesystem/types.[method]descriptor.advise": async | trappable,
            "wasi:filesystem/types.[method]descriptor.create-directory-at": async | trappable,
            "wasi:filesystem/types.[method]descriptor.link-at": async | trappable,
            "wasi:filesystem/types.[method]descriptor.metadata-hash-at": async | trappable,
            "wasi:filesystem/types.[method]descriptor.open-at": async | trappable,
            "wasi:filesystem/types.[method]descriptor.read": async | trappable,
            "wasi:filesystem/types.[method]descriptor.readlink-at": async | trappable,
            "wasi:filesystem/types.[method]descriptor.remove-directory-at": async | trappable,
            "wasi:filesystem/types.[method]descriptor.rename-at": async | trappable,
            "wasi:filesystem/types.[method]descriptor.set-times-at": async | trappable,
            "wasi:filesystem/types.[method]descriptor.stat-at": async | trappable,
            "wasi:filesystem/types.[method]descriptor.symlink-at": async | trappable,
            "wasi:filesystem/types.[method]descriptor.unlink-file-at": async | trappable,
            "wasi:filesystem/types.[method]directory-entry-stream.read-directory-entry": async | trappable,
            default: trappable,
        },
        trappable_error_type: { "wasi:filesystem/types.error-code" => super::errors::Fault },
        with: {
            "wasi:io": wasmtime_wasi::p2::bindings::io,
            "wasi:clocks": wasmtime_wasi::p2::bindings::clocks,
            "wasi:filesystem/types.descriptor": super::descriptor::Descriptor,
            "wasi:filesystem/types.directory-entry-stream": super::streams::Listing,
        },
    });
}

/// A directory that a guest finds open when it starts.
#[derive(Clone, Debug)]
pub struct Preopen {
    /// The path under which the guest sees it.
    pub path: String,
    /// The filesystem whose top directory it is.
    pub filesystem: Filesystem,
}

/// The filesystems of a guest: a part of the store's data.
#[derive(Debug)]
pub struct FilesystemCtx {
    preopens: Vec<Preopen>,
    seats: Arc<Seats>,
}

/// Descriptors, directory streams and file streams that a guest may hold at once beside its preopens; one more is
/// `insufficient-memory`.
pub const OPEN_MAX: usize = 8_000;

impl FilesystemCtx {
    /// Gives a guest `/workspace`, `/state` and `/tmp`, and `.`, which is `/workspace` again.
    ///
    /// C libraries without a current directory of their own (wasi-libc) look relative paths up below `.`. They do the same with absolute
    /// paths that no other preopen is a prefix of, so `/x` is `/workspace/x` to them: odd, but nothing outside can be meant by it.
    #[must_use]
    pub fn new(workspace: &Workspace) -> Self {
        let preopen = |path: &str, filesystem: &Filesystem| Preopen { path: path.to_owned(), filesystem: filesystem.clone() };
        Self::with_preopens(vec![
            preopen("/workspace", &workspace.workspace),
            preopen("/state", &workspace.state),
            preopen("/tmp", &workspace.tmp),
            preopen(".", &workspace.workspace),
        ])
    }

    /// Gives a guest these directories.
    #[must_use]
    pub fn with_preopens(preopens: Vec<Preopen>) -> Self {
        Self { preopens, seats: Arc::new(Seats::new(OPEN_MAX)) }
    }
}

/// The path of the current directory for `wasi:cli/environment.initial-cwd`.
pub const INITIAL_CWD: &str = "/workspace";

/// A look at the parts of the store's data that the interface needs.
#[derive(Debug)]
pub struct FilesystemView<'a> {
    /// The guest's filesystems.
    pub ctx: &'a mut FilesystemCtx,
    /// The table of its resources.
    pub table: &'a mut ResourceTable,
}

/// Store data that holds a guest's filesystems.
pub trait FilesystemHost: Send {
    /// Returns the parts that the interface needs.
    fn filesystem(&mut self) -> FilesystemView<'_>;
}

/// Links `wasi:filesystem/types` and `wasi:filesystem/preopens`.
///
/// # Errors
/// When they are linked already.
pub fn add_to_linker<T: FilesystemHost + 'static>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    bindings::wasi::filesystem::types::add_to_linker::<T, Marker>(linker, T::filesystem)?;
    bindings::wasi::filesystem::preopens::add_to_linker::<T, Marker>(linker, T::filesystem)
}

struct Marker;

impl HasData for Marker {
    type Data<'a> = FilesystemView<'a>;
}
