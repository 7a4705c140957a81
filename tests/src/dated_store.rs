//! A store in memory whose dates come from a world's clock, with machines whose own clocks are wrong: for tests in which days pass.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use landfall::clock::{Clock, UnixNanos};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};

/// The one true time, nanoseconds since 1970. It moves when it is told to, and when somebody waits.
#[derive(Clone, Debug)]
pub struct World {
    now: Arc<AtomicI64>,
}

impl World {
    /// Begins at an instant.
    #[must_use]
    pub fn at(now: UnixNanos) -> Self {
        Self { now: Arc::new(AtomicI64::new(now)) }
    }

    /// Returns the time.
    #[must_use]
    pub fn now(&self) -> UnixNanos {
        self.now.load(Ordering::SeqCst)
    }

    /// Moves it on.
    pub fn advance(&self, span: Duration) {
        self.now.fetch_add(i64::try_from(span.as_nanos()).unwrap(), Ordering::SeqCst);
    }
}

/// A machine's clock: ahead of the world by a fixed span, and faster or slower than it.
#[derive(Debug)]
pub struct WrongClock {
    world: World,
    began: UnixNanos,
    ahead: i64,
    /// Seconds gained in a million.
    drift: i64,
}

impl WrongClock {
    /// Makes one.
    #[must_use]
    pub fn new(world: &World, ahead: Duration, behind: Duration, drift: i64) -> Self {
        let span = |span: Duration| i64::try_from(span.as_nanos()).unwrap();
        Self { world: world.clone(), began: world.now(), ahead: span(ahead) - span(behind), drift }
    }

    fn run(&self) -> i64 {
        let passed = self.world.now() - self.began;
        passed + passed / 1_000_000 * self.drift
    }
}

#[async_trait::async_trait]
impl Clock for WrongClock {
    fn now(&self) -> UnixNanos {
        self.began + self.ahead + self.run()
    }

    fn boot(&self) -> Duration {
        Duration::from_nanos(u64::try_from(self.run()).unwrap_or(0))
    }

    async fn sleep(&self, span: Duration) {
        self.world.advance(span);
        tokio::task::yield_now().await;
    }
}

/// The store.
#[derive(Clone)]
pub struct DatedStore {
    inner: Arc<InMemory>,
    world: World,
    dates: Arc<Mutex<HashMap<Path, UnixNanos>>>,
    requests: Arc<AtomicU64>,
    lists: Arc<AtomicU64>,
}

impl DatedStore {
    /// Makes an empty one.
    #[must_use]
    pub fn new(world: &World) -> Self {
        Self {
            inner: Arc::new(InMemory::new()),
            world: world.clone(),
            dates: Arc::default(),
            requests: Arc::default(),
            lists: Arc::default(),
        }
    }

    /// Returns how many requests there were; a listing counts once.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }

    /// Returns how many pages of 1,000 were listed.
    #[must_use]
    pub fn list_pages(&self) -> u64 {
        self.lists.load(Ordering::SeqCst)
    }

    fn date(&self, mut meta: ObjectMeta) -> ObjectMeta {
        let dates = self.dates.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(date) = dates.get(&meta.location) {
            // Whole seconds, as HTTP has it.
            meta.last_modified = chrono::DateTime::from_timestamp_nanos(date - date.rem_euclid(1_000_000_000));
        }
        meta
    }
}

impl fmt::Debug for DatedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatedStore({:?})", self.world)
    }
}

impl fmt::Display for DatedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("dated")
    }
}

#[async_trait::async_trait]
impl ObjectStore for DatedStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let done = self.inner.put_opts(location, payload, opts).await?;
        self.dates.lock().unwrap_or_else(PoisonError::into_inner).insert(location.clone(), self.world.now());
        Ok(done)
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let mut result = self.inner.get_opts(location, options).await?;
        result.meta = self.date(result.meta);
        Ok(result)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let (store, seen) = (self.clone(), AtomicU64::new(0));
        self.inner
            .list(prefix)
            .map(move |meta| {
                if seen.fetch_add(1, Ordering::SeqCst).is_multiple_of(1000) {
                    store.lists.fetch_add(1, Ordering::SeqCst);
                }
                Ok(store.date(meta?))
            })
            .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
