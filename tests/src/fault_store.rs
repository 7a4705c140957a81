//! An object store with faults: it wraps a good one, and does to chosen requests what networks and servers do.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::sync::watch;

/// What happens to one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The write takes effect, and the answer is a server error.
    ApplyThen500,
    /// The write takes effect, and the answer is that its condition doesn't hold: the client library repeated it and met its own first try.
    ApplyThen412,
    /// The write takes effect, and the answer is 409, as if another one had been under way.
    ApplyThen409,
    /// The write takes effect, and the connection is reset before the answer comes.
    ApplyThenReset,
    /// Nothing happens, and the answer is a server error.
    Fail500,
    /// Nothing happens, and the answer is 409.
    Fail409,
    /// Nothing happens, and the answer never comes.
    TimeOut,
    /// The write has other bytes than it was given: one bit is flipped on the way.
    FlipPut,
    /// The answer to a read has one bit flipped.
    FlipGet,
    /// The answer to a read ends early.
    TruncateGet,
    /// The store has no space left.
    Full,
    /// Access is refused.
    Denied,
}

impl Fault {
    fn is_of_reads(self) -> bool {
        matches!(self, Self::FlipGet | Self::TruncateGet)
    }
}

/// Chooses requests: a part of the object's path, and how many of those requests go well before.
struct Rule {
    part: String,
    skip: u32,
    times: u32,
    fault: Fault,
}

/// A write that is held back: it has come to the store, and neither takes effect nor is answered until this lets it through, or is dropped.
#[derive(Debug)]
pub struct HeldBack {
    come: watch::Receiver<bool>,
    open: watch::Sender<bool>,
}

impl HeldBack {
    /// Waits until the write has come.
    pub async fn has_come(&mut self) {
        // The other side is gone only with the store.
        let _ = self.come.wait_for(|come| *come).await;
    }

    /// Lets the write through.
    pub fn let_through(self) {
        self.open.send_replace(true);
    }
}

/// The store's side of a write that is to be held back.
struct Gate {
    part: String,
    come: watch::Sender<bool>,
    open: watch::Receiver<bool>,
}

/// A store with faults.
#[derive(Clone)]
pub struct FaultStore {
    inner: Arc<dyn ObjectStore>,
    rules: Arc<Mutex<Vec<Rule>>>,
    gates: Arc<Mutex<Vec<Gate>>>,
    hit: Arc<AtomicU64>,
    hidden: Arc<AtomicU64>,
    listed: Arc<AtomicU64>,
}

impl FaultStore {
    /// Wraps a store; it has no faults yet.
    #[must_use]
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self { inner, rules: Arc::default(), gates: Arc::default(), hit: Arc::default(), hidden: Arc::default(), listed: Arc::default() }
    }

    /// Lets the next request of an object whose path contains `part` meet a fault.
    pub fn next(&self, part: &str, fault: Fault) {
        self.after(part, 0, 1, fault);
    }

    /// Lets `times` requests meet a fault after `skip` have gone well.
    pub fn after(&self, part: &str, skip: u32, times: u32, fault: Fault) {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).push(Rule { part: part.to_owned(), skip, times, fault });
    }

    /// Holds the next write of an object back whose path contains `part`; those after it go on.
    #[must_use]
    pub fn hold(&self, part: &str) -> HeldBack {
        let (come, open) = (watch::Sender::new(false), watch::Sender::new(false));
        let held = HeldBack { come: come.subscribe(), open };
        let gate = Gate { part: part.to_owned(), come, open: held.open.subscribe() };
        self.gates.lock().unwrap_or_else(PoisonError::into_inner).push(gate);
        held
    }

    async fn pass_gate(&self, location: &Path) {
        let gate = {
            let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
            let at = gates.iter().position(|gate| location.as_ref().contains(&gate.part));
            at.map(|at| gates.remove(at))
        };
        if let Some(mut gate) = gate {
            gate.come.send_replace(true);
            let _ = gate.open.wait_for(|open| *open).await;
        }
    }

    /// Ends all faults.
    pub fn heal(&self) {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns how many requests met a fault: a test of a fault that wasn't met has tested nothing.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.hit.load(Ordering::SeqCst)
    }

    /// Lets listings leave out one key of every `nth`; 0 ends that.
    pub fn hide_one_of(&self, nth: u64) {
        self.hidden.store(nth, Ordering::SeqCst);
    }

    fn fault(&self, location: &Path, is_read: bool) -> Option<Fault> {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        for rule in rules.iter_mut() {
            let both = matches!(rule.fault, Fault::Fail500 | Fault::TimeOut | Fault::Denied);
            if rule.times == 0 || !location.as_ref().contains(&rule.part) || (!both && rule.fault.is_of_reads() != is_read) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            rule.times -= 1;
            self.hit.fetch_add(1, Ordering::SeqCst);
            return Some(rule.fault);
        }
        None
    }
}

impl fmt::Debug for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultStore({:?})", self.inner)
    }
}

impl fmt::Display for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "faulty {}", self.inner)
    }
}

fn answer(fault: Fault, location: &Path) -> Error {
    let path = location.to_string();
    let io = |kind: std::io::ErrorKind| Error::Generic { store: "fault", source: Box::new(std::io::Error::from(kind)) };
    match fault {
        Fault::ApplyThen412 => Error::Precondition { path, source: "412".into() },
        Fault::ApplyThen409 | Fault::Fail409 => Error::AlreadyExists { path, source: "409".into() },
        Fault::ApplyThenReset => io(std::io::ErrorKind::ConnectionReset),
        Fault::TimeOut => io(std::io::ErrorKind::TimedOut),
        Fault::Full => Error::Generic { store: "fault", source: Box::new(std::io::Error::from_raw_os_error(28)) },
        Fault::Denied => Error::PermissionDenied { path, source: "403".into() },
        _ => Error::Generic { store: "fault", source: "Server returned non-2xx status code: 500".into() },
    }
}

fn flip(bytes: &Bytes) -> Bytes {
    let mut flipped = bytes.to_vec();
    let middle = flipped.len() / 2;
    if let Some(byte) = flipped.get_mut(middle) {
        *byte ^= 1;
    }
    flipped.into()
}

#[async_trait::async_trait]
impl ObjectStore for FaultStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.pass_gate(location).await;
        match self.fault(location, false) {
            None => self.inner.put_opts(location, payload, opts).await,
            Some(Fault::FlipPut) => self.inner.put_opts(location, flip(&payload.into()).into(), opts).await,
            Some(fault @ (Fault::ApplyThen500 | Fault::ApplyThen412 | Fault::ApplyThen409 | Fault::ApplyThenReset)) => {
                self.inner.put_opts(location, payload, opts).await?;
                Err(answer(fault, location))
            }
            // A conflict without another write can only be met by conditional writes.
            Some(Fault::Fail409) if opts.mode == PutMode::Overwrite => self.inner.put_opts(location, payload, opts).await,
            Some(fault) => Err(answer(fault, location)),
        }
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let fault = self.fault(location, true);
        match fault {
            None => self.inner.get_opts(location, options).await,
            Some(Fault::FlipGet | Fault::TruncateGet) => {
                let mut result = self.inner.get_opts(location, options).await?;
                let (meta, range, attributes, extensions) =
                    (result.meta.clone(), result.range.clone(), result.attributes.clone(), std::mem::take(&mut result.extensions));
                let bytes = result.bytes().await?;
                let bytes = if fault == Some(Fault::FlipGet) { flip(&bytes) } else { bytes.slice(..bytes.len() / 2) };
                let payload = GetResultPayload::Stream(futures::stream::once(std::future::ready(Ok(bytes))).boxed());
                Ok(GetResult { payload, meta, range, attributes, extensions })
            }
            Some(fault) => Err(answer(fault, location)),
        }
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let this = self.clone();
        let shown = move |_: &Result<ObjectMeta>| {
            let nth = this.hidden.load(Ordering::SeqCst);
            let hides = nth > 0 && this.listed.fetch_add(1, Ordering::SeqCst).is_multiple_of(nth);
            this.hit.fetch_add(u64::from(hides), Ordering::SeqCst);
            std::future::ready(!hides)
        };
        self.inner.list(prefix).filter(shown).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
