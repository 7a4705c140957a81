//! The marker object: it tells a store from some other folder or bucket, and names its format.

use futures::TryStreamExt as _;
use object_store::ObjectStore as _;
use serde::{Deserialize, Serialize};

use super::cas::Created;
use super::document::Document;
use super::{Key, Store, keys};
use crate::clock::UnixNanos;
use crate::error::{Error, Result};

/// What the marker says. Its document version is the format version of the store as a whole.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Marker {
    /// When the store was made, nanoseconds since 1970 by its maker's clock.
    pub(crate) created: UnixNanos,
}

impl Document for Marker {
    const KIND: &'static str = "store";
    const VERSION: u32 = 1;
    const DAMAGED: &'static str = "marker_damaged";
}

impl Store {
    /// Whether the marker is there, and one that this program reads.
    pub(super) async fn is_marked(&self) -> Result<bool> {
        self.check_folder()?;
        match self.load::<Marker>(&Key::Marker).await {
            Ok(marker) => Ok(marker.is_some()),
            Err(error) => Err(error.context(format!("opening the store {self}"))),
        }
    }

    /// Makes this an empty store unless it is a store already.
    pub(super) async fn mark(&self) -> Result<()> {
        if self.is_marked().await? {
            return Ok(());
        }
        if let Some(found) = self.first_object().await? {
            return Err(Error::store(format!("{self} is not a store: it holds {found:?} and no {}", Key::Marker))
                .code("not_a_store")
                .hint("name an empty folder or prefix, or the one where the store is"));
        }
        let marker = Marker { created: self.clock().now() };
        match self.create(&Key::Marker, &marker).await {
            // Somebody else made it at the same time: just as good.
            Ok(Created::Done(_) | Created::Exists(_)) => Ok(()),
            Err(error) => Err(error.context(format!("making the store {self}"))),
        }
    }

    /// A path that is a file fails in a hundred ways below; here it is said once.
    fn check_folder(&self) -> Result<()> {
        let Some(root) = self.folder() else { return Ok(()) };
        match std::fs::metadata(&root) {
            Ok(metadata) if !metadata.is_dir() => Err(Error::store(format!("{self} is not a store: it is a file"))
                .code("not_a_store")
                .hint("name a folder: a new one, or the one where the store is")),
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
                Err(Error::store(format!("{self} is not a store: it lies below a file"))
                    .code("not_a_store")
                    .hint("name a folder: a new one, or the one where the store is"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the name of something below the prefix.
    async fn first_object(&self) -> Result<Option<String>> {
        if let Some(root) = self.folder() {
            // Other than a listing of objects this sees empty folders and dot files too.
            return match std::fs::read_dir(&root) {
                Ok(mut entries) => Ok(entries.find_map(|entry| {
                    entry
                        .ok()
                        .map(|entry| entry.file_name().to_string_lossy().into_owned())
                        .filter(|name| name != ".tmp" && name != ".locks")
                })),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(super::failure::explain(
                    &self.to_string(),
                    "listing the folder",
                    object_store::Error::Generic { store: "file", source: error.into() },
                )),
            };
        }
        self.counters.list();
        let path = keys::object_path(&self.inner.prefix, "")?;
        let first = self.inner.objects.list(Some(&path)).try_next().await;
        first.map(|found| found.map(|meta| meta.location.to_string())).map_err(|error| self.explain("listing", &"the prefix", error))
    }
}
